// Ten calls of the service by a generated client; the argument is the address.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	eventkit "example.com/eventkit"
)

func check(holds bool, said ...any) {
	if !holds {
		panic(fmt.Sprint(said...))
	}
}

func main() {
	settings, ctx := eventkit.NewConfiguration(), context.Background()
	settings.Servers = eventkit.ServerConfigurations{{URL: os.Args[1]}}
	client := eventkit.NewAPIClient(settings)

	input := eventkit.NewQueueInput("emails")
	input.SetLease(60)
	queue, _, err := client.QueuesAPI.CreateQueue(ctx).QueueInput(*input).Execute()
	check(err == nil && queue.Settings.GetLease() == 60, queue, err)

	task := eventkit.NewNewTask(map[string]any{"to": "ann"})
	task.SetPriority(3)
	task.SetHeaders(map[string]string{"a": "b"})
	body := eventkit.AddTasksRequest{NewTask: task}
	added, answer, err := client.QueuesAPI.AddTasks(ctx, "emails").IdempotencyKey("order-42").AddTasksRequest(body).Execute()
	check(err == nil && answer.StatusCode == 201 && added.Accepted.Created, added, err)

	listed, _, err := client.QueuesAPI.ListTasks(ctx, "emails").State("ready").Limit(5).Execute()
	check(err == nil && len(listed) == 1 && listed[0].Id == added.Accepted.Id, listed, err)

	claimed, _, err := client.QueuesAPI.Poll(ctx, "emails").Batch(5).Execute()
	check(err == nil && claimed[0].Headers["a"] == "b" && claimed[0].Priority == 3, claimed, err)

	acked := eventkit.NewAcked(claimed[0].Id, claimed[0].Token)
	acked.SetResult(map[string]any{"sent": true})
	done, _, err := client.QueuesAPI.Ack(ctx, "emails").AckRequest(eventkit.AckRequest{Acked: acked}).Execute()
	check(err == nil && done[0].Done, done, err)

	result, _, err := client.ResultsAPI.GetResult(ctx, fmt.Sprint(claimed[0].Id)).Execute()
	check(err == nil && result.Value.(map[string]any)["sent"] == true, result, err)

	second := eventkit.NewIncomingEvent(2)
	second.SetKey("k")
	events := []eventkit.IncomingEvent{*eventkit.NewIncomingEvent(1), *second}
	request := eventkit.PublishRequest{ArrayOfIncomingEvent: &events}
	published, _, err := client.StreamsAPI.Publish(ctx, "orders").PublishRequest(request).Execute()
	check(err == nil && len(published.Offsets) == 2, published, err)

	read, _, err := client.StreamsAPI.ReadEvents(ctx, "orders").After(published.Offsets[0]).Execute()
	check(err == nil && len(read) == 1 && read[0].GetKey() == "k", read, err)

	lock, _, err := client.LocksAPI.AcquireLock(ctx, "report").Attempt(*eventkit.NewAttempt()).Execute()
	check(err == nil && lock.Name == "report", lock, err)

	_, _, err = client.QueuesAPI.GetQueue(ctx, "none").Execute()
	var refused *eventkit.GenericOpenAPIError
	check(errors.As(err, &refused), err)
	problem, ok := refused.Model().(eventkit.Problem)
	check(ok && problem.Status == 404 && problem.Code == "unknown_queue", refused)
	fmt.Println("10 calls")
}
