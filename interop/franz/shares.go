package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const groupResource = 32

func shares() {
	check("share group: two consumers, each record once", shareTogether)
	check("share group: accept, release and reject, with counts", shareVerdicts)
	check("share group: renewed longer than the lock", shareRenewed)
	check("share group: a limit of records", shareLimited)
	check("share group: described, its offsets altered and deleted", shareAdmin)
}

func text(value string) *string { return &value }

// shareGroup names a group that starts at the beginning, and waits until its settings are known.
func shareGroup(ctx context.Context, settings map[string]string) string {
	serial++
	name := fmt.Sprintf("franz-share-%d-%d", time.Now().UnixNano(), serial)
	asked := client()
	defer asked.Close()
	settings["share.auto.offset.reset"] = "earliest"
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = groupResource, name
	for key, value := range settings {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value = key, text(value)
		resource.Configs = append(resource.Configs, config)
	}
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(ctx, asked)
	must(err)
	same(answer.Resources[0].ErrorCode, int16(0))
	for !shareConfigured(ctx, asked, name, settings) {
		must(ctx.Err())
		time.Sleep(20 * time.Millisecond)
	}
	return name
}

func shareConfigured(ctx context.Context, asked *kgo.Client, name string, settings map[string]string) bool {
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = groupResource, name
	request := kmsg.NewPtrDescribeConfigsRequest()
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(ctx, asked)
	must(err)
	found := 0
	for _, config := range answer.Resources[0].Configs {
		if wanted, ok := settings[config.Name]; ok && config.Value != nil && *config.Value == wanted {
			found++
		}
	}
	return found == len(settings)
}

func fill(ctx context.Context, name string, count int) {
	writer := client(kgo.DefaultProduceTopic(name), kgo.ProducerLinger(0))
	defer writer.Close()
	for number := 0; number < count; number++ {
		must(writer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(number))).FirstErr())
	}
}

func worker(group, name string, options ...kgo.Opt) *kgo.Client {
	return client(append([]kgo.Opt{kgo.ShareGroup(group), kgo.ConsumeTopics(name)}, options...)...)
}

// poll waits a little for records, and takes nothing for an answer.
func poll(ctx context.Context, from *kgo.Client) []*kgo.Record {
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	found := from.PollFetches(short).Records()
	must(ctx.Err())
	return found
}

func shareLag(ctx context.Context, group, name string) int64 {
	asked := client()
	defer asked.Close()
	found, err := kadm.NewClient(asked).DescribeShareGroupOffsets(ctx, group)
	must(err)
	must(found.Error())
	offset, ok := found[group].Offsets.Lookup(name, 0)
	if !ok {
		return -1
	}
	return offset.Lag
}

func awaitLag(ctx context.Context, group, name string, wanted int64) {
	for shareLag(ctx, group, name) != wanted {
		must(ctx.Err())
		time.Sleep(20 * time.Millisecond)
	}
}

func shareTogether(ctx context.Context) {
	name, group := topic(ctx, 1, nil), shareGroup(ctx, map[string]string{})
	fill(ctx, name, 60)
	one, two := worker(group, name, kgo.ShareMaxRecords(5)), worker(group, name, kgo.ShareMaxRecords(5))
	defer one.Close()
	defer two.Close()
	seen := map[int64]int{}
	for len(seen) < 60 {
		for _, from := range []*kgo.Client{one, two} {
			for _, record := range poll(ctx, from) {
				seen[record.Offset]++
				same(record.DeliveryCount(), int32(1))
				record.Ack(kgo.AckAccept)
			}
			must(from.FlushAcks(ctx))
		}
	}
	for offset, times := range seen {
		same(fmt.Sprint(offset, " ", times), fmt.Sprint(offset, " ", 1))
	}
	awaitLag(ctx, group, name, 0)
}

func shareVerdicts(ctx context.Context) {
	name, group := topic(ctx, 1, nil), shareGroup(ctx, map[string]string{})
	fill(ctx, name, 6)
	from := worker(group, name)
	defer from.Close()
	counts := map[int64][]int32{}
	for settled := 0; settled < 10; {
		for _, record := range poll(ctx, from) {
			settled++
			counts[record.Offset] = append(counts[record.Offset], record.DeliveryCount())
			switch {
			case record.Offset%3 == 1 && record.DeliveryCount() < 3:
				record.Ack(kgo.AckRelease)
			case record.Offset%3 == 2:
				record.Ack(kgo.AckReject)
			default:
				record.Ack(kgo.AckAccept)
			}
		}
		must(from.FlushAcks(ctx))
	}
	once, thrice := []int32{1}, []int32{1, 2, 3}
	same(counts, map[int64][]int32{0: once, 1: thrice, 2: once, 3: once, 4: thrice, 5: once})
	awaitLag(ctx, group, name, 0)
}

func shareRenewed(ctx context.Context) {
	name, group := topic(ctx, 1, nil), shareGroup(ctx, map[string]string{"share.record.lock.duration.ms": "3000"})
	fill(ctx, name, 1)
	one := worker(group, name)
	defer one.Close()
	var held []*kgo.Record
	for len(held) == 0 {
		held = poll(ctx, one)
	}
	// Not before: a client fetches ahead, and would hold the record until its lock runs out.
	two := worker(group, name)
	defer two.Close()
	for number := 0; number < 8; number++ {
		held[0].Ack(kgo.AckRenew)
		must(one.FlushAcks(ctx))
		same(len(poll(ctx, two)), 0)
		time.Sleep(300 * time.Millisecond)
	}
	held[0].Ack(kgo.AckAccept)
	must(one.FlushAcks(ctx))
	awaitLag(ctx, group, name, 0)
}

func shareLimited(ctx context.Context) {
	name, group := topic(ctx, 1, nil), shareGroup(ctx, map[string]string{})
	writer := client(kgo.DefaultProduceTopic(name), kgo.ProducerLinger(50*time.Millisecond))
	var batch []*kgo.Record
	for number := 0; number < 20; number++ {
		batch = append(batch, kgo.StringRecord(fmt.Sprint(number)))
	}
	must(writer.ProduceSync(ctx, batch...).FirstErr())
	writer.Close()
	from := worker(group, name, kgo.ShareMaxRecords(3), kgo.ShareMaxRecordsStrict())
	defer from.Close()
	seen := map[int64]bool{}
	for len(seen) < 20 {
		now := poll(ctx, from)
		if len(now) > 3 {
			panic(fmt.Sprint("more than the limit: ", len(now)))
		}
		for _, record := range now {
			seen[record.Offset] = true
			record.Ack(kgo.AckAccept)
		}
		must(from.FlushAcks(ctx))
	}
}

func shareAdmin(ctx context.Context) {
	name, group := topic(ctx, 1, nil), shareGroup(ctx, map[string]string{})
	fill(ctx, name, 10)
	asked := client()
	defer asked.Close()
	admin := kadm.NewClient(asked)
	var offsets kadm.Offsets
	offsets.AddOffset(name, 0, 4, -1)
	altered, err := admin.AlterShareGroupOffsets(ctx, group, offsets)
	must(err)
	must(altered.Error())
	awaitLag(ctx, group, name, 6)
	from := worker(group, name)
	var seen []int64
	for len(seen) < 6 {
		for _, record := range poll(ctx, from) {
			seen = append(seen, record.Offset)
			record.Ack(kgo.AckAccept)
		}
		must(from.FlushAcks(ctx))
	}
	same(seen, []int64{4, 5, 6, 7, 8, 9})
	described, err := admin.DescribeShareGroups(ctx, group)
	must(err)
	must(described.Error())
	same(described[group].GroupState, "Stable")
	same(len(described[group].Members), 1)
	from.Close()
	awaitLag(ctx, group, name, 0)
	deleted, err := admin.DeleteShareGroupOffsets(ctx, group, name)
	must(err)
	must(deleted.Error())
	same(shareLag(ctx, group, name), int64(-1))
}
