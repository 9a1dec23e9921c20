// Ten calls of the service by a client whose types are generated; the argument is the address.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

const client = createClient<paths>({ baseUrl: process.argv[2] });

function check(holds: boolean, said: unknown): asserts holds {
    if (!holds) throw new Error(JSON.stringify(said));
}

const queue = await client.POST("/queues", { body: { name: "emails", lease: 60, retry: [5, 30] } });
check(queue.data?.settings.lease === 60, queue);
const path = { queue: "emails" };
const added = await client.POST("/queues/{queue}/tasks", {
    params: { path, header: { "Idempotency-Key": "order-42" } },
    body: { payload: { to: "ann" }, priority: 3, headers: { a: "b" } },
});
check(added.response.status === 201 && added.data !== undefined && !Array.isArray(added.data), added);
const listed = await client.GET("/queues/{queue}/tasks", { params: { path, query: { state: "ready", limit: 5 } } });
check(listed.data?.[0].id === added.data.id, listed);
const [task] = (await client.POST("/queues/{queue}/poll", { params: { path, query: { batch: 5 } } })).data ?? [];
check(task.headers.a === "b" && task.priority === 3, task);
const acked = await client.POST("/queues/{queue}/ack", {
    params: { path },
    body: { id: task.id, token: task.token, result: { sent: true } },
});
check(acked.data?.[0].done === true, acked);
const result = await client.GET("/results/{result}", { params: { path: { result: `${task.id}` } } });
check((result.data?.value as { sent: boolean }).sent, result);
const published = await client.POST("/streams/{stream}/events", {
    params: { path: { stream: "orders" } },
    body: [{ payload: 1 }, { payload: 2, key: "k" }],
});
check(published.data !== undefined, published);
const events = await client.GET("/streams/{stream}/events", {
    params: { path: { stream: "orders" }, query: { after: published.data.offsets[0] } },
});
check(events.data?.length === 1 && events.data[0].key === "k", events);
const lock = await client.POST("/locks/{lock}/acquire", { params: { path: { lock: "report" } }, body: { ttl_ms: 1000 } });
check(lock.data?.fence !== undefined, lock);
const refused = await client.GET("/queues/{queue}", { params: { path: { queue: "none" } } });
check(refused.error?.status === 404 && refused.error.code === "unknown_queue", refused);
console.log("10 calls");
