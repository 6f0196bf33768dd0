-- Customers who may buy before a sale starts for all: those with a code of a group or, of a group without codes, with a token that names it.
CREATE TABLE "sale_groups" (
    "sale_id" INTEGER NOT NULL,
    "name" TEXT NOT NULL,
    "opens_at" TIMESTAMPTZ(3) NOT NULL,
    "has_codes" BOOLEAN NOT NULL,

    CONSTRAINT "sale_groups_pkey" PRIMARY KEY ("sale_id", "name"),
    CONSTRAINT "sale_groups_sale_id_fkey" FOREIGN KEY ("sale_id") REFERENCES "sales"("id") ON DELETE RESTRICT ON UPDATE RESTRICT
);

CREATE TABLE "sale_codes" (
    "sale_id" INTEGER NOT NULL,
    "code" TEXT NOT NULL,
    "group_name" TEXT NOT NULL,
    -- By so many customers.
    "uses" INTEGER NOT NULL,
    "taken" INTEGER NOT NULL DEFAULT 0,

    CONSTRAINT "sale_codes_pkey" PRIMARY KEY ("sale_id", "code"),
    CONSTRAINT "sale_codes_group_fkey" FOREIGN KEY ("sale_id", "group_name") REFERENCES "sale_groups"("sale_id", "name")
        ON DELETE RESTRICT ON UPDATE RESTRICT,
    CONSTRAINT "sale_codes_within_uses" CHECK ("taken" BETWEEN 0 AND "uses")
);

-- Customers who have a use of a code. A second row for one would be a second use: the key rejects it.
CREATE TABLE "sale_code_uses" (
    "sale_id" INTEGER NOT NULL,
    "code" TEXT NOT NULL,
    "user_id" TEXT NOT NULL,
    "taken_at" TIMESTAMPTZ(3) NOT NULL DEFAULT clock_timestamp(),

    CONSTRAINT "sale_code_uses_pkey" PRIMARY KEY ("sale_id", "code", "user_id"),
    CONSTRAINT "sale_code_uses_code_fkey" FOREIGN KEY ("sale_id", "code") REFERENCES "sale_codes"("sale_id", "code")
        ON DELETE RESTRICT ON UPDATE RESTRICT
);
