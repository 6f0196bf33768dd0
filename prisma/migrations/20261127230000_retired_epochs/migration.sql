-- The earlier epochs of a server that was not restarted in between: see src/store/redis/epochs.ts.
ALTER TABLE redis_epochs ADD COLUMN retired integer[] NOT NULL DEFAULT '{}';
