-- Uses of codes name customers: they are deleted as other old rows are, which takes a key of one column, and an index by their age.
ALTER TABLE "sale_code_uses" ADD COLUMN "id" BIGSERIAL;
CREATE UNIQUE INDEX "sale_code_uses_id_key" ON "sale_code_uses"("id");
CREATE INDEX "sale_code_uses_taken_at_idx" ON "sale_code_uses"("taken_at");
