-- Hourly sums.

-- step: AddAmounts
INSERT INTO eventkit_rollup AS r (subject, name, hour, measure, amount)
SELECT *
FROM unnest(:sums.0::text[], :sums.1::text[], :sums.2::bigint[], :sums.3::text[], :sums.4::bigint[])
ORDER BY 1, 2, 3, 4
ON CONFLICT (subject, name, hour, measure) DO UPDATE
SET amount = r.amount + excluded.amount

-- name: ReadSums
SELECT subject, name, hour, measure, amount
FROM eventkit_rollup
WHERE hour >= :since AND hour < :before
ORDER BY subject, name, hour, measure
