-- What each process serves, for the rate of turns: see src/access/capacity.ts.
CREATE TABLE "capacities" (
    "process" UUID NOT NULL,
    "per_second" DOUBLE PRECISION NOT NULL,
    "noted_at" TIMESTAMPTZ(3) NOT NULL,

    CONSTRAINT "capacities_pkey" PRIMARY KEY ("process")
);
