// Clients that publish to topics and consume from them until a line of input comes. Then prints what became of all:
// "sent 100 failed 0 lacking 0 twice 1 disordered 0 longest 120", the last being milliseconds until a receipt, since the
// last line "begin" of the input. The clients' own lines above INFO go to the output as well.
//
// Arguments: service URL, begin of the topics' names, milliseconds between two messages of a topic, topics of one client,
// number of topics.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

func main() {
	pauseMs, ofClient, count := number(os.Args[3]), number(os.Args[4]), number(os.Args[5])
	lines := logrus.New()
	lines.SetOutput(os.Stdout)
	lines.SetLevel(logrus.WarnLevel)
	var producers []pulsar.Producer
	var arrivals []*arrived
	var client pulsar.Client
	for index := range count {
		if index%ofClient == 0 {
			var err error
			client, err = pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], Logger: log.NewLoggerWithLogrus(lines)})
			check(err)
		}
		topic := os.Args[2] + strconv.Itoa(index)
		consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
		check(err)
		producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, SendTimeout: -1})
		check(err)
		producers = append(producers, producer)
		arrivals = append(arrivals, &arrived{got: map[int]bool{}, last: -1})
		go arrivals[index].take(consumer)
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
		for _, producer := range producers {
			open.Add(1)
			sentAt := time.Now()
			message := pulsar.ProducerMessage{Payload: []byte(strconv.Itoa(rounds))}
			producer.SendAsync(context.Background(), &message,
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
					if err != nil {
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

// The numbers that one consumer got, each acknowledged at once.
type arrived struct {
	lock                    sync.Mutex
	got                     map[int]bool
	last, twice, disordered int
}

func (all *arrived) take(consumer pulsar.Consumer) {
	for {
		message, err := consumer.Receive(context.Background())
		check(err)
		check(consumer.Ack(message))
		one := number(string(message.Payload()))
		all.lock.Lock()
		if all.got[one] {
			all.twice++
		} else if one < all.last {
			all.disordered++
		}
		all.got[one] = true
		all.last = max(all.last, one)
		all.lock.Unlock()
	}
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
