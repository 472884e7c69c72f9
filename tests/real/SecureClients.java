import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;

/**
 * Tries all at once to send and to receive ten messages, each as another client, and prints what became of each try in a
 * line of its own: {@code name: served}, or, in the place of the last word, the exceptions with their messages.
 *
 * <p>Arguments, five for each: name, service URL, file of the authorities, credentials ({@code token TOKEN}, {@code
 * basic USER PASSWORD}, {@code tls CERTIFICATE KEY}, or nothing), topic.
 */
public class SecureClients {

    private static final int OF_EACH = 5;

    public static void main(String[] arguments) {
        List<CompletableFuture<String>> tries = new ArrayList<>();
        for (int first = 0; first < arguments.length; first += OF_EACH) {
            String[] one = Arrays.copyOfRange(arguments, first, first + OF_EACH);
            tries.add(CompletableFuture.supplyAsync(() -> one[0] + ": " + fate(one), task -> new Thread(task).start()));
        }
        tries.forEach(each -> System.out.println(each.join()));
        System.exit(0);
    }

    private static String fate(String[] one) {
        ClientBuilder builder = PulsarClient.builder().serviceUrl(one[1]).tlsTrustCertsFilePath(one[2])
                .enableTlsHostnameVerification(true).operationTimeout(4, TimeUnit.SECONDS).ioThreads(1);
        try (PulsarClient client = shown(builder, one[3].split(" ")).build();
                Consumer<byte[]> consumer = client.newConsumer().topic(one[4]).subscriptionName("s").subscribe();
                Producer<byte[]> producer = client.newProducer().topic(one[4]).create()) {
            for (int number = 0; number < 10; number++) {
                producer.send(Integer.toString(number).getBytes(StandardCharsets.UTF_8));
            }
            for (int number = 0; number < 10; number++) {
                String content = new String(consumer.receive(5, TimeUnit.SECONDS).getData(), StandardCharsets.UTF_8);
                if (!content.equals(Integer.toString(number))) {
                    return "received " + content + " in the place of " + number;
                }
            }
            return "served";
        } catch (Exception error) {
            StringBuilder said = new StringBuilder();
            for (Throwable each = error; each != null; each = each.getCause()) {
                said.append(each.getClass().getSimpleName()).append(' ').append(each.getMessage()).append("; ");
            }
            return said.toString().replace('\n', ' ');
        }
    }

    private static ClientBuilder shown(ClientBuilder builder, String[] credentials) {
        switch (credentials[0]) {
            case "token":
                return builder.authentication(AuthenticationFactory.token(credentials[1]));
            case "tls":
                return builder.authentication(AuthenticationFactory.TLS(credentials[1], credentials[2]));
            case "basic":
                AuthenticationBasic basic = new AuthenticationBasic();
                basic.configure(Map.of("userId", credentials[1], "password", credentials[2]));
                return builder.authentication((Authentication) basic);
            default:
                return builder;
        }
    }
}
