// Clients that publish to topics and consume from them until a line of input comes. Then prints what became of all:
// "sent 100 failed 0 lacking 0 twice 1 disordered 0 longest 120", the last being milliseconds until a receipt, since the
// last line "begin" of the input. The clients' own lines above INFO go to the output as well.
//
// Arguments: service URL, begin of the topics' names, milliseconds between two messages of a topic, topics of one client,
// and the kind of each topic: a type of subscription, "Reader", "Chunks" or "Transactions". A subscription that may have
// several consumers has two. Order is that of each key, but for Shared, which has none.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const (
	chunk = 1000
	keys  = 8
)

var types = map[string]pulsar.SubscriptionType{
	"Shared": pulsar.Shared, "Failover": pulsar.Failover, "Key_Shared": pulsar.KeyShared,
}

func main() {
	pauseMs, ofClient, kinds := number(os.Args[3]), number(os.Args[4]), os.Args[5:]
	count := len(kinds)
	lines := logrus.New()
	lines.SetOutput(os.Stdout)
	lines.SetLevel(logrus.WarnLevel)
	lines.SetFormatter(&logrus.TextFormatter{TimestampFormat: time.RFC3339Nano})
	var senders []sender
	var arrivals []*arrived
	var client pulsar.Client
	for index, kind := range kinds {
		if index%ofClient == 0 {
			var err error
			client, err = pulsar.NewClient(pulsar.ClientOptions{
				URL: os.Args[1], Logger: log.NewLoggerWithLogrus(lines), EnableTransaction: kind == "Transactions",
			})
			check(err)
		}
		topic := os.Args[2] + strconv.Itoa(index)
		all := &arrived{got: map[int]bool{}, isOrdered: kind != "Shared"}
		all.open(client, topic, kind)
		arrivals = append(arrivals, all)
		senders = append(senders, newSender(client, topic, kind))
	}
	fmt.Println("ready")
	isOver := make(chan bool)
	var failed, longest atomic.Int64
	go func() {
		for input := bufio.NewReader(os.Stdin); ; {
			if line, err := input.ReadString('\n'); line != "begin\n" || err != nil {
				break
			}
			longest.Store(0)
		}
		close(isOver)
	}()
	var open sync.WaitGroup
	rounds := 0
	for isOn := true; isOn; rounds++ {
		for _, send := range senders {
			open.Add(1)
			sentAt := time.Now()
			send(rounds, func(err error) {
				if err != nil {
					fmt.Println(err)
					failed.Add(1)
				}
				for took := time.Since(sentAt).Milliseconds(); ; {
					most := longest.Load()
					if took <= most || longest.CompareAndSwap(most, took) {
						break
					}
				}
				open.Done()
			})
			time.Sleep(time.Duration(pauseMs) * time.Millisecond / time.Duration(count))
		}
		select {
		case <-isOver:
			isOn = false
		default:
		}
	}
	open.Wait()
	lacking, twice, disordered := 0, 0, 0
	for _, each := range arrivals {
		lacking += rounds - each.awaited(rounds)
		twice += each.twice
		disordered += each.disordered
	}
	fmt.Println("sent", rounds*count, "failed", failed.Load(), "lacking", lacking, "twice", twice,
		"disordered", disordered, "longest", longest.Load())
}

// Sends a number, and calls a function with what became of it.
type sender func(number int, done func(error))

func newSender(client pulsar.Client, topic, kind string) sender {
	options := pulsar.ProducerOptions{Topic: topic}
	switch kind {
	case "Chunks":
		options.DisableBatching, options.EnableChunking, options.ChunkMaxMessageSize = true, true, chunk
	case "Key_Shared":
		options.BatcherBuilderType = pulsar.KeyBasedBatchBuilder
	}
	producer, err := client.CreateProducer(options)
	check(err)
	message := func(number int) *pulsar.ProducerMessage {
		content := []byte(strconv.Itoa(number))
		if kind == "Chunks" {
			content = append(content, make([]byte, 3*chunk)...)
		}
		return &pulsar.ProducerMessage{Payload: content, Key: strconv.Itoa(number % keys)}
	}
	if kind != "Transactions" {
		return func(number int, done func(error)) {
			producer.SendAsync(context.Background(), message(number),
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { done(err) })
		}
	}
	waiting := make(chan func(), 100_000)
	go func() { // one after the other
		for next := range waiting {
			next()
		}
	}()
	return func(number int, done func(error)) {
		waiting <- func() {
			transaction, err := client.NewTransaction(time.Minute)
			if err == nil {
				of := message(number)
				of.Transaction = transaction
				if _, err = producer.Send(context.Background(), of); err == nil {
					err = transaction.Commit(context.Background())
				}
			}
			done(err)
		}
	}
}

// The numbers that the consumers of a topic got, each acknowledged at once.
type arrived struct {
	lock              sync.Mutex
	got               map[int]bool
	last              [keys]int
	isOrdered         bool
	twice, disordered int
}

func (all *arrived) open(client pulsar.Client, topic, kind string) {
	if kind == "Reader" {
		reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
		check(err)
		go func() {
			for {
				message, err := reader.Next(context.Background())
				check(err)
				all.take(message)
			}
		}()
		return
	}
	count := 1
	if types[kind] != pulsar.Exclusive {
		count = 2
	}
	for range count {
		consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s", Type: types[kind]})
		check(err)
		go func() {
			for {
				message, err := consumer.Receive(context.Background())
				check(err)
				check(consumer.Ack(message))
				all.take(message)
			}
		}()
	}
}

func (all *arrived) take(message pulsar.Message) {
	one := number(strings.TrimRight(string(message.Payload()), "\x00"))
	all.lock.Lock()
	defer all.lock.Unlock()
	last := &all.last[one%keys]
	if all.got[one] {
		all.twice++
	} else if one < *last && all.isOrdered {
		all.disordered++
	}
	all.got[one] = true
	*last = max(*last, one)
}

func (all *arrived) awaited(count int) int {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		all.lock.Lock()
		size := len(all.got)
		all.lock.Unlock()
		if size >= count || time.Now().After(end) {
			return size
		}
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
