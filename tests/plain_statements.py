"""The statements of docs/plain-sql.md, as a session that has only SQL runs them."""

from sql_sessions import Session

PUBLISH = {
    "sqlite": "INSERT OR IGNORE INTO eventkit_event (topic, payload, {names}) VALUES ('t', '{payload}', {values})",
    "postgresql": "SELECT {schema}.eventkit_publish('t', '{payload}', {named})",
}
ENQUEUE = {
    "sqlite": "INSERT OR IGNORE INTO eventkit_task (queue, payload, {names}) VALUES ('q', '{payload}', {values})",
    "postgresql": "SELECT {schema}.eventkit_enqueue('q', '{payload}', {named})",
}
NOTIFY = {
    "sqlite": "INSERT INTO eventkit_notification (channel, payload) VALUES ('c', '{payload}')",
    "postgresql": "SELECT {schema}.eventkit_notify('c', '{payload}')",
}


def said(statements: dict[str, str], session: Session, payload: object = 1, **values: object) -> list[str]:
    """Run the statement of the session's database, with further arguments as literals."""
    literals = {name: f"'{value}'" if isinstance(value, str) else str(value) for name, value in values.items()}
    text = statements[session.dialect]
    if not literals:
        text = text.replace(", {names}", "").replace(", {values}", "").replace(", {named}", "")
    return session.run(
        text.replace("{names}", ", ".join(literals))
        .replace("{values}", ", ".join(literals.values()))
        .replace("{named}", ", ".join(f"{name} => {value}" for name, value in literals.items()))
        .replace("{payload}", str(payload))
    )
