// franz-go against a broker: `go run . host:port`.
// Every check prints "ok <what>"; the first that fails ends the program with its reason.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var bootstrap string
var serial int

func main() {
	bootstrap = os.Args[1]
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		check("produce and direct consume, "+codec, func(ctx context.Context) { roundTrip(ctx, codec) })
	}
	check("acks 0 and 1", acks)
	check("start at offsets and times", positions)
	check("a record too large", tooLarge)
	check("admin", admin)
	check("a waiting consumer wakes up", wakeUp)
	transactions()
	shares()
}

func check(what string, body func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	defer func() {
		if problem := recover(); problem != nil {
			fmt.Printf("FAIL %s\n%v\n", what, problem)
			os.Exit(1)
		}
	}()
	body(ctx)
	fmt.Println("ok", what)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func same(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("found %v, expected %v", found, expected))
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap)}, options...)...)
	must(err)
	return made
}

func topic(ctx context.Context, partitions int32, configs map[string]*string) string {
	serial++
	name := fmt.Sprintf("franz-%d-%d", time.Now().UnixNano(), serial)
	made := client()
	defer made.Close()
	answer, err := kadm.NewClient(made).CreateTopic(ctx, partitions, 1, configs, name)
	must(err)
	must(answer.Err)
	for {
		found, err := kadm.NewClient(made).ListEndOffsets(ctx, name)
		must(err)
		if found.Error() == nil && len(found[name]) == int(partitions) {
			return name
		}
		must(ctx.Err())
		time.Sleep(20 * time.Millisecond)
	}
}

func take(ctx context.Context, from *kgo.Client, count int) []*kgo.Record {
	var found []*kgo.Record
	for len(found) < count {
		fetches := from.PollFetches(ctx)
		must(fetches.Err())
		found = append(found, fetches.Records()...)
	}
	same(len(found), count)
	return found
}

func roundTrip(ctx context.Context, codec string) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	name := topic(ctx, 2, nil)
	writer := client(kgo.ProducerBatchCompression(codecs[codec]), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer writer.Close()
	var records []*kgo.Record
	for index := 0; index < 500; index++ {
		records = append(records, &kgo.Record{
			Topic: name, Partition: int32(index % 2), Key: []byte(fmt.Sprint("k", index)),
			Value:   []byte(strings.Repeat("value ", 20) + fmt.Sprint(index)),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte(fmt.Sprint(index))}, {Key: "none"}},
		})
	}
	results := writer.ProduceSync(ctx, records...)
	must(results.FirstErr())
	for index, record := range records {
		same(record.Offset, int64(index/2))
	}
	reader := client(kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer reader.Close()
	for _, record := range take(ctx, reader, 500) {
		index := int(record.Offset)*2 + int(record.Partition)
		same(string(record.Key), fmt.Sprint("k", index))
		same(string(record.Value), strings.Repeat("value ", 20)+fmt.Sprint(index))
		same(string(record.Headers[0].Value), fmt.Sprint(index))
		same(len(record.Headers), 2)
	}
}

func acks(ctx context.Context) {
	for _, how := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck()} {
		name := topic(ctx, 1, nil)
		writer := client(kgo.RequiredAcks(how), kgo.DisableIdempotentWrite(), kgo.DefaultProduceTopic(name))
		for index := 0; index < 50; index++ {
			must(writer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(index))).FirstErr())
		}
		reader := client(kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for index, record := range take(ctx, reader, 50) {
			same(string(record.Value), fmt.Sprint(index))
		}
		reader.Close()
		writer.Close()
	}
}

func positions(ctx context.Context) {
	name := topic(ctx, 1, nil)
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	writer := client(kgo.DefaultProduceTopic(name))
	defer writer.Close()
	for index := 0; index < 20; index++ {
		record := kgo.StringRecord(fmt.Sprint(index))
		record.Timestamp = start.Add(time.Duration(index) * time.Second)
		must(writer.ProduceSync(ctx, record).FirstErr())
	}
	from := func(offset kgo.Offset) *kgo.Client {
		return client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: {0: offset}}))
	}
	for expected, offset := range map[int]kgo.Offset{
		7:  kgo.NewOffset().At(7),
		0:  kgo.NewOffset().AtStart(),
		12: kgo.NewOffset().AfterMilli(start.Add(11500 * time.Millisecond).UnixMilli()),
		15: kgo.NewOffset().AtEnd().Relative(-5),
	} {
		reader := from(offset)
		found := take(ctx, reader, 20-expected)
		same(string(found[0].Value), fmt.Sprint(expected))
		reader.Close()
	}
}

func tooLarge(ctx context.Context) {
	limit := "1000"
	name := topic(ctx, 1, map[string]*string{"max.message.bytes": &limit})
	writer := client(kgo.DefaultProduceTopic(name), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer writer.Close()
	err := writer.ProduceSync(ctx, kgo.StringRecord(strings.Repeat("v", 2000))).FirstErr()
	if !errors.Is(err, kerr.MessageTooLarge) {
		panic(fmt.Sprint("found ", err))
	}
	must(writer.ProduceSync(ctx, kgo.StringRecord("fits")).FirstErr())
}

func admin(ctx context.Context) {
	made := client()
	defer made.Close()
	asked := kadm.NewClient(made)
	name := topic(ctx, 1, nil)
	grown, err := asked.UpdatePartitions(ctx, 4, name)
	must(err)
	must(grown.Error())
	value := "7200000"
	altered, err := asked.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}}, name)
	must(err)
	must(altered[0].Err)
	for {
		found, err := asked.DescribeTopicConfigs(ctx, name)
		must(err)
		got := ""
		for _, config := range found[0].Configs {
			if config.Key == "retention.ms" {
				got = config.MaybeValue()
			}
		}
		if got == value {
			break
		}
		must(ctx.Err())
		time.Sleep(20 * time.Millisecond)
	}
	metadata, err := asked.Metadata(ctx, name)
	must(err)
	same(len(metadata.Brokers), 1)
	same(len(metadata.Topics[name].Partitions), 4)
	deleted, err := asked.DeleteTopics(ctx, name)
	must(err)
	must(deleted.Error())
}

func wakeUp(ctx context.Context) {
	name := topic(ctx, 1, nil)
	reader := client(kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(8*time.Second))
	defer reader.Close()
	go func() {
		time.Sleep(500 * time.Millisecond)
		writer := client(kgo.DefaultProduceTopic(name))
		defer writer.Close()
		must(writer.ProduceSync(ctx, kgo.StringRecord("wake up")).FirstErr())
	}()
	started := time.Now()
	same(string(take(ctx, reader, 1)[0].Value), "wake up")
	if time.Since(started) > 5*time.Second {
		panic("it slept on")
	}
}
