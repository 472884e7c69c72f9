import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageListener;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/**
 * Clients that each publish to a topic and consume from it until a line of input comes. Then prints what became of all:
 * {@code sent 100 failed 0 lacking 0 twice 1 disordered 0 longest 120}, the last being milliseconds until a receipt. The
 * clients' own log goes to the output as well.
 *
 * <p>Arguments: service URL, begin of the topics' names, number of clients, milliseconds between two messages.
 */
public class MovedClients {

    private static final AtomicInteger FAILED = new AtomicInteger();
    private static final AtomicLong LONGEST = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[2]);
        long pauseMs = Long.parseLong(arguments[3]);
        List<Producer<byte[]>> producers = new ArrayList<>();
        List<Arrivals> arrivals = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
            String topic = arguments[1] + number;
            arrivals.add(new Arrivals());
            client.newConsumer().topic(topic).subscriptionName("s").messageListener(arrivals.get(number)).subscribe();
            producers.add(client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS).create());
        }
        System.out.println("ready");
        List<CompletableFuture<?>> receipts = new ArrayList<>();
        int rounds = 0;
        for (; System.in.available() == 0; rounds++) {
            for (Producer<byte[]> producer : producers) {
                receipts.add(send(producer, rounds));
            }
            Thread.sleep(pauseMs);
        }
        for (CompletableFuture<?> receipt : receipts) {
            receipt.get(60, TimeUnit.SECONDS);
        }
        int lacking = 0;
        int twice = 0;
        int disordered = 0;
        for (Arrivals each : arrivals) {
            lacking += rounds - each.awaited(rounds);
            twice += each.twice;
            disordered += each.disordered;
        }
        System.out.println("sent " + receipts.size() + " failed " + FAILED + " lacking " + lacking + " twice " + twice
                + " disordered " + disordered + " longest " + LONGEST);
        Runtime.getRuntime().halt(0);
    }

    private static CompletableFuture<?> send(Producer<byte[]> producer, int number) {
        long sentAt = System.nanoTime();
        byte[] content = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
        return producer.sendAsync(content).handle((id, error) -> {
            LONGEST.accumulateAndGet(TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - sentAt), Math::max);
            return error == null ? 0 : FAILED.incrementAndGet();
        });
    }

    /** The numbers that one consumer got, each acknowledged at once. */
    private static final class Arrivals implements MessageListener<byte[]> {

        private final Set<Integer> got = new HashSet<>();
        private int last = -1;
        private int twice;
        private int disordered;

        @Override
        public synchronized void received(Consumer<byte[]> consumer, Message<byte[]> message) {
            int number = Integer.parseInt(new String(message.getData(), StandardCharsets.UTF_8));
            consumer.acknowledgeAsync(message);
            if (!got.add(number)) {
                twice++;
            } else if (number < last) {
                disordered++;
            }
            last = Math.max(last, number);
            notifyAll();
        }

        private synchronized int awaited(int count) throws InterruptedException {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (got.size() < count && System.nanoTime() < end) {
                wait(100);
            }
            return got.size();
        }
    }
}
