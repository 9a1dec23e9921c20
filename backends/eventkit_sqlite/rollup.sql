-- Hourly sums.

-- step: AddAmounts
INSERT INTO eventkit_rollup (subject, name, hour, measure, amount)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(:sums)
WHERE true
ON CONFLICT (subject, name, hour, measure) DO UPDATE
SET amount = eventkit_rollup.amount + excluded.amount

-- name: ReadSums
SELECT subject, name, hour, measure, amount
FROM eventkit_rollup
WHERE hour >= :since AND hour < :before
ORDER BY subject, name, hour, measure
