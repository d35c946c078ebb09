package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func transactions() {
	check("transactions over several partitions, an epoch for each", commitAndAbort)
	check("a newcomer fences a zombie", fencing)
	check("read, process and write in transactions", readProcessWrite)
	check("list and describe transactions", listAndDescribe)
}

func transactional(id string) *kgo.Client {
	return client(kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(id))
}

func write(ctx context.Context, writer *kgo.Client, partition int32, value string) error {
	return writer.ProduceSync(ctx, &kgo.Record{Partition: partition, Value: []byte(value)}).FirstErr()
}

// committed reads values until as many are there as expected: markers may follow a commit's answer.
func committed(ctx context.Context, name string, expected ...string) {
	reader := client(kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer reader.Close()
	var found []string
	for _, record := range take(ctx, reader, len(expected)) {
		found = append(found, fmt.Sprint(record.Partition, ":", string(record.Value)))
	}
	slices.Sort(found)
	same(found, expected)
}

func describe(ctx context.Context, id string) kadm.DescribedTransaction {
	asked := client()
	defer asked.Close()
	found, err := kadm.NewClient(asked).DescribeTransactions(ctx, id)
	must(err)
	must(found[id].Err)
	return found[id]
}

func settled(ctx context.Context, id, state string) kadm.DescribedTransaction {
	for {
		found := describe(ctx, id)
		if found.State == state {
			return found
		}
		must(ctx.Err())
		time.Sleep(20 * time.Millisecond)
	}
}

func commitAndAbort(ctx context.Context) {
	name := topic(ctx, 2, nil)
	writer := transactional(name)
	defer writer.Close()
	for number := 0; number < 5; number++ {
		must(writer.BeginTransaction())
		for partition := int32(0); partition < 2; partition++ {
			must(write(ctx, writer, partition, fmt.Sprint(number)))
		}
		must(writer.EndTransaction(ctx, kgo.TransactionEndTry(number%2 == 0)))
	}
	// The client has seen that transaction.version 2 is finalized: every end gives it another epoch.
	same(settled(ctx, name, "CompleteCommit").ProducerEpoch, int16(5))
	committed(ctx, name, "0:0", "0:2", "0:4", "1:0", "1:2", "1:4")
}

func fencing(ctx context.Context) {
	name := topic(ctx, 1, nil)
	zombie, newcomer := transactional(name), transactional(name)
	defer zombie.Close()
	defer newcomer.Close()
	must(zombie.BeginTransaction())
	must(write(ctx, zombie, 0, "zombie"))
	// The broker aborts what the zombie has begun and asks to come again; this client leaves that to its user.
	for err := newcomer.BeginTransaction(); err != nil; err = newcomer.BeginTransaction() {
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			panic(err)
		}
		must(ctx.Err())
		time.Sleep(20 * time.Millisecond)
	}
	must(write(ctx, newcomer, 0, "newcomer"))
	err := zombie.EndTransaction(ctx, kgo.TryCommit)
	if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		panic(fmt.Sprint("the zombie was told ", err))
	}
	must(newcomer.EndTransaction(ctx, kgo.TryCommit))
	committed(ctx, name, "0:newcomer")
}

// readProcessWrite copies rows in a group; the second transaction is aborted, so its rows come again.
func readProcessWrite(ctx context.Context) {
	source, sink := topic(ctx, 2, nil), topic(ctx, 1, nil)
	filler := transactional(source)
	defer filler.Close()
	must(filler.BeginTransaction())
	var expected []string
	for number := 0; number < 30; number++ {
		value := fmt.Sprintf("row-%02d", number)
		must(write(ctx, filler, int32(number%2), value))
		expected = append(expected, "0:"+strings.ToUpper(value))
	}
	must(filler.EndTransaction(ctx, kgo.TryCommit))
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(sink),
		kgo.ConsumerGroup(sink), kgo.ConsumeTopics(source), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(), kgo.DefaultProduceTopic(sink))
	must(err)
	defer session.Close()
	for done, round := 0, 0; done < 30; round++ {
		rows := session.PollRecords(ctx, 8)
		must(rows.Err())
		must(session.Begin())
		var copies []*kgo.Record
		rows.EachRecord(func(row *kgo.Record) {
			copies = append(copies, kgo.StringRecord(strings.ToUpper(string(row.Value))))
		})
		must(session.ProduceSync(ctx, copies...).FirstErr())
		ended, err := session.End(ctx, kgo.TransactionEndTry(round != 1))
		must(err)
		same(ended, round != 1)
		if ended {
			done += rows.NumRecords()
		}
	}
	settled(ctx, sink, "CompleteCommit")
	committed(ctx, sink, expected...)
	asked := client()
	defer asked.Close()
	offsets, err := kadm.NewClient(asked).FetchOffsets(ctx, sink)
	must(err)
	must(offsets.Error())
	for partition := int32(0); partition < 2; partition++ {
		found, _ := offsets.Lookup(source, partition)
		// Behind the rows is the marker of the transaction that wrote them.
		if found.At != 15 && found.At != 16 {
			panic(fmt.Sprint("the group is at ", found.At, " of partition ", partition))
		}
	}
}

func listAndDescribe(ctx context.Context) {
	name := topic(ctx, 2, nil)
	writer := transactional(name)
	defer writer.Close()
	must(writer.BeginTransaction())
	must(write(ctx, writer, 1, "open"))
	found := describe(ctx, name)
	same(found.State, "Ongoing")
	same(found.Topics.Sorted(), kadm.TopicsList{{Topic: name, Partitions: []int32{1}}})
	asked := client()
	defer asked.Close()
	listed, err := kadm.NewClient(asked).ListTransactions(ctx, []int64{found.ProducerID}, []string{"Ongoing"})
	must(err)
	same(listed.TransactionalIDs(), []string{name})
	producers, err := kadm.NewClient(asked).DescribeProducers(ctx, found.Topics)
	must(err)
	same(producers[name].Partitions[1].ActiveProducers[found.ProducerID].CurrentTxnStartOffset, int64(0))
	must(writer.EndTransaction(ctx, kgo.TryAbort))
	same(len(settled(ctx, name, "CompleteAbort").Topics), 0)
}
