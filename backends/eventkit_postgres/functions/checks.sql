-- Checks for the functions that plain SQL calls, with the library's error texts.

CREATE OR REPLACE FUNCTION eventkit_check_name(kind text, name text, longest integer DEFAULT 255) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF $2 IS NULL THEN
        RAISE EXCEPTION 'the name of a % is a text, not NULL', $1 USING ERRCODE = 'invalid_parameter_value';
    ELSIF length($2) NOT BETWEEN 1 AND $3 THEN
        RAISE EXCEPTION 'the name of a % has 1 to % characters, not %', $1, $3, length($2)
        USING ERRCODE = 'invalid_parameter_value';
    ELSIF $2 ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'the name of a % holds no control characters: %', $1, to_json($2)
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN $2;
END
$$

CREATE OR REPLACE FUNCTION eventkit_check_given(what text, value bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF $2 IS NULL THEN
        RAISE EXCEPTION '% is a number, not NULL', $1 USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN $2;
END
$$

CREATE OR REPLACE FUNCTION eventkit_check_count(what text, value bigint, smallest bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF eventkit_check_given($1, $2) < $3 THEN
        RAISE EXCEPTION '% is a whole number from % to 9223372036854775807, not %', $1, $3, $2
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN $2;
END
$$

-- Seconds as whole milliseconds; NULL stays NULL.
CREATE OR REPLACE FUNCTION eventkit_check_seconds(what text, seconds double precision, smallest bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF abs($2) > 3162240000 THEN  -- NaN too, which is greater than any number.
        RAISE EXCEPTION '% is a finite number of seconds, up to a hundred years, not %', $1, $2
        USING ERRCODE = 'invalid_parameter_value';
    ELSIF round($2 * 1000) < $3 THEN
        RAISE EXCEPTION '% is at least % seconds, not %', $1, $3 / 1000.0::double precision, $2
        USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN round($2 * 1000)::bigint;
END
$$

-- Check that every reader can decode a payload.  The type json has checked the syntax.
CREATE OR REPLACE FUNCTION eventkit_check_payload(payload json, optional boolean DEFAULT false) RETURNS json
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    source text := $1::text;
    rest text;
    depth integer := 0;
    problem text;
BEGIN
    IF $1 IS NULL AND $2 THEN
        RETURN NULL;
    ELSIF $1 IS NULL THEN
        problem := 'the payload is JSON, not NULL: for a null say ''null''';
    ELSIF octet_length(source) > 524288 THEN
        problem := format(
            'the payload has %s bytes as JSON, more than 524,288: store the data elsewhere and send a reference',
            to_char(octet_length(source), 'FM999,999,999')
        );
    ELSE
        IF source ~* '\\ud' THEN  -- Escaped backslashes escape nothing.
            rest := replace(source, '\\', '');
            rest := regexp_replace(rest, '\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}', '', 'g');
            IF rest ~* '\\ud[89a-f]' THEN
                problem := 'the payload holds a lone surrogate, which is not text';
            END IF;
        END IF;
        IF length(source) > 128 OR source ~* '\de' THEN
            rest := regexp_replace(source, '"(?:[^"\\]|\\.)*"', '', 'g');
            PERFORM number[1]::double precision
            FROM regexp_matches(rest, '(-?\d+(?:\.\d+)?[eE]\+?\d{3,})', 'g') AS number;
            rest := regexp_replace(rest, '[^][{}]', '', 'g');
            WHILE rest <> '' AND depth <= 64 LOOP
                rest := regexp_replace(rest, '\[\]|\{\}', '', 'g');
                depth := depth + 1;
            END LOOP;
            IF depth > 64 THEN
                problem := 'the payload is nested deeper than 64 levels: flatten it';
            END IF;
        END IF;
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN $1;
END
$$

CREATE OR REPLACE FUNCTION eventkit_check_headers(headers json) RETURNS json
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    texts boolean := false;
BEGIN
    IF $1 IS NULL OR json_typeof($1) = 'null' THEN
        RETURN NULL;
    ELSIF json_typeof($1) = 'object' THEN
        texts := NOT EXISTS (SELECT FROM json_each($1) AS h WHERE json_typeof(h.value) <> 'string');
    END IF;
    IF NOT texts THEN
        RAISE EXCEPTION 'headers are an object of strings, not %', $1 USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN eventkit_check_payload($1);
END
$$

-- A number that cannot be guessed.
CREATE OR REPLACE FUNCTION eventkit_token() RETURNS bigint
LANGUAGE sql VOLATILE
AS $$
    SELECT ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint & 9223372036854775807
$$
