import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Clients that publish to topics and consume from them until a line of input comes. Then prints what became of all:
 * {@code sent 100 failed 0 lacking 0 twice 1 disordered 0 longest 120}, the last being milliseconds until a receipt, since
 * the last line {@code begin} of the input. The clients' own log goes to the output as well.
 *
 * <p>Arguments: service URL, begin of the topics' names, milliseconds between two messages of a topic, topics of one
 * client, and the kind of each topic: a type of subscription, {@code Reader}, {@code Chunks} or {@code Transactions}. A
 * subscription that may have several consumers has two. Order is that of each key, but for Shared, which has none.
 */
public class MovedClients {

    private static final int CHUNK = 1000;
    private static final int KEYS = 8;
    private static final AtomicInteger FAILED = new AtomicInteger();
    private static final AtomicLong LONGEST = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        List<One> all = new ArrayList<>();
        int ofClient = Integer.parseInt(arguments[3]);
        PulsarClient client = null;
        for (int number = 4; number < arguments.length; number++) {
            if ((number - 4) % ofClient == 0) {
                client = PulsarClient.builder().serviceUrl(arguments[0])
                        .enableTransaction(arguments[number].equals("Transactions")).build();
            }
            all.add(new One(client, arguments[1] + number, arguments[number]));
        }
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        do {
            LONGEST.set(0);
            while (!input.ready()) {
                for (One each : all) {
                    each.send();
                    TimeUnit.MICROSECONDS.sleep(Long.parseLong(arguments[2]) * 1000 / all.size());
                }
            }
        } while (input.readLine().equals("begin"));
        int sent = 0;
        int lacking = 0;
        int twice = 0;
        int disordered = 0;
        for (One each : all) {
            each.await();
            sent += each.sent;
            lacking += each.sent - each.got.size();
            twice += each.twice;
            disordered += each.disordered;
        }
        System.out.println("sent " + sent + " failed " + FAILED + " lacking " + lacking + " twice " + twice
                + " disordered " + disordered + " longest " + LONGEST);
        Runtime.getRuntime().halt(0);
    }

    /** A producer, and its consumers or a reader; each message that comes is acknowledged at once. */
    private static final class One {

        private final PulsarClient client;
        private final Producer<byte[]> producer;
        private final String kind;
        private final Set<Integer> got = new HashSet<>();
        private final List<CompletableFuture<?>> receipts = new ArrayList<>();
        private CompletableFuture<?> before = CompletableFuture.completedFuture(null);
        private int sent;
        private final int[] last = new int[KEYS];
        private int twice;
        private int disordered;

        private One(PulsarClient client, String topic, String kind) throws PulsarClientException {
            this.client = client;
            this.kind = kind;
            boolean isTransactional = kind.equals("Transactions");
            if (kind.equals("Reader")) {
                client.newReader().topic(topic).startMessageId(MessageId.earliest)
                        .readerListener((reader, message) -> take(message)).create();
            } else {
                boolean isType = !isTransactional && !kind.equals("Chunks");
                SubscriptionType type = isType ? SubscriptionType.valueOf(kind) : SubscriptionType.Exclusive;
                for (int consumer = type == SubscriptionType.Exclusive ? 1 : 0; consumer < 2; consumer++) {
                    client.newConsumer().topic(topic).subscriptionName("s").subscriptionType(type)
                            .messageListener(this::received).subscribe();
                }
            }
            ProducerBuilder<byte[]> builder = client.newProducer().topic(topic);
            if (kind.equals("Chunks")) {
                builder.enableBatching(false).enableChunking(true).chunkMaxMessageSize(CHUNK);
            } else if (kind.equals("Key_Shared")) {
                builder.batcherBuilder(BatcherBuilder.KEY_BASED);
            }
            producer = builder.create();
        }

        private void received(Consumer<byte[]> consumer, Message<byte[]> message) {
            take(message);
            consumer.acknowledgeAsync(message);
        }

        private synchronized void take(Message<byte[]> message) {
            int number = ByteBuffer.wrap(message.getData()).getInt();
            int key = number % KEYS;
            if (!got.add(number)) {
                twice++;
            } else if (number < last[key] && !kind.equals("Shared")) {
                disordered++;
            }
            last[key] = Math.max(last[key], number);
            notifyAll();
        }

        private void send() {
            String key = "k" + sent % KEYS;
            byte[] content = ByteBuffer.allocate(kind.equals("Chunks") ? 3 * CHUNK : 4).putInt(sent++).array();
            if (kind.equals("Transactions")) {
                before = before.thenCompose(nothing -> inTransaction(content));  // one after the other
                receipts.add(before);
            } else {
                receipts.add(counted(producer.newMessage().key(key).value(content).sendAsync()));
            }
        }

        private CompletableFuture<?> inTransaction(byte[] content) {
            return counted(client.newTransaction().withTransactionTimeout(60, TimeUnit.SECONDS).build()
                    .thenCompose((Transaction one) -> {
                        CompletableFuture<MessageId> receipt;
                        try {
                            receipt = producer.newMessage(one).value(content).sendAsync();
                        } catch (RuntimeException error) {
                            throw new CompletionException(error);
                        }
                        return receipt.thenCompose(id -> one.commit());
                    }));
        }

        private CompletableFuture<?> counted(CompletableFuture<?> receipt) {
            long sentAt = System.nanoTime();
            return receipt.handle((id, error) -> {
                LONGEST.accumulateAndGet(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - sentAt), Math::max);
                if (error != null) {
                    System.out.println(kind + ": " + error);
                    FAILED.incrementAndGet();
                }
                return null;
            });
        }

        private synchronized void await() throws Exception {
            for (CompletableFuture<?> receipt : receipts) {
                receipt.get(60, TimeUnit.SECONDS);
            }
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (got.size() < sent && System.nanoTime() < end) {
                wait(100);
            }
        }
    }
}
