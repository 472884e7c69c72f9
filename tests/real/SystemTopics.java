import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.pulsar.common.naming.SystemTopicNames;
import org.apache.pulsar.common.naming.TopicName;

/** Reads names in Base64, one a line; answers `refused`, or whether it is a system topic and its name without partition. */
public class SystemTopics {
    public static void main(String[] arguments) throws Exception {
        // As BrokerService.isSystemTopic does; that class would need a broker.
        Method isService = Class.forName("org.apache.pulsar.broker.namespace.NamespaceService")
            .getMethod("isSystemServiceNamespace", String.class);
        BufferedReader names = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = names.readLine(); line != null; line = names.readLine()) {
            String name = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
            String answer = "refused";
            try {
                TopicName topic = TopicName.get(name);
                boolean isSystem = (boolean) isService.invoke(null, topic.getNamespace())
                    || SystemTopicNames.isSystemTopic(topic);
                byte[] whole = topic.getPartitionedTopicName().getBytes(StandardCharsets.UTF_8);
                answer = isSystem + " " + Base64.getEncoder().encodeToString(whole);
            } catch (IllegalArgumentException invalid) {
                // The answer says so.
            }
            System.out.println(answer);
        }
    }
}
