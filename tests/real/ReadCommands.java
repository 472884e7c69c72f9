import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.pulsar.common.api.proto.BaseCommand;
import org.apache.pulsar.common.api.proto.CommandCloseConsumer;
import org.apache.pulsar.common.api.proto.CommandCloseProducer;
import org.apache.pulsar.common.api.proto.CommandFlow;
import org.apache.pulsar.common.api.proto.CommandProducer;
import org.apache.pulsar.common.api.proto.CommandRedeliverUnacknowledgedMessages;
import org.apache.pulsar.common.api.proto.CommandSend;
import org.apache.pulsar.common.api.proto.CommandSubscribe;
import org.apache.pulsar.common.api.proto.CommandUnsubscribe;

/** Reads a command in hexadecimal from each line of its input as a broker would, and prints what it gets to see. */
public class ReadCommands {

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(read(HexFormat.of().parseHex(line)));
        }
    }

    private static String read(byte[] command) {
        ByteBuf buffer = Unpooled.wrappedBuffer(command);
        BaseCommand envelope = new BaseCommand();
        try {
            envelope.parseFrom(buffer, command.length);
            return told(envelope);
        } catch (RuntimeException error) {
            return "none";
        }
    }

    private static String told(BaseCommand envelope) {
        switch (envelope.getType()) {
            case PRODUCER:
                CommandProducer producer = envelope.getProducer();
                return said("5", producer.getProducerId(), producer.getRequestId(), producer.getTopic(),
                        producer.hasProducerName() ? producer.getProducerName() : "");
            case SUBSCRIBE:
                CommandSubscribe subscribe = envelope.getSubscribe();
                return said("4", subscribe.getConsumerId(), subscribe.getRequestId(), subscribe.getTopic(),
                        subscribe.getSubscription(), subscribe.hasConsumerName() ? subscribe.getConsumerName() : "");
            case SEND:
                CommandSend send = envelope.getSend();
                return said("6", send.getProducerId(), send.getSequenceId(), send.getNumMessages());
            case FLOW:
                CommandFlow flow = envelope.getFlow();
                return said("11", flow.getConsumerId(), flow.getMessagePermits());
            case UNSUBSCRIBE:
                CommandUnsubscribe unsubscribe = envelope.getUnsubscribe();
                return said("12", unsubscribe.getConsumerId(), unsubscribe.getRequestId());
            case CLOSE_PRODUCER:
                CommandCloseProducer closeProducer = envelope.getCloseProducer();
                return said("15", closeProducer.getProducerId(), closeProducer.getRequestId());
            case CLOSE_CONSUMER:
                CommandCloseConsumer closeConsumer = envelope.getCloseConsumer();
                return said("16", closeConsumer.getConsumerId(), closeConsumer.getRequestId());
            case REDELIVER_UNACKNOWLEDGED_MESSAGES:
                CommandRedeliverUnacknowledgedMessages redeliver = envelope.getRedeliverUnacknowledgedMessages();
                return said("20", redeliver.getConsumerId(), redeliver.hasConsumerEpoch() ? redeliver.getConsumerEpoch() : "");
            default:
                return "none";
        }
    }

    private static String said(String type, Object... values) {
        StringBuilder text = new StringBuilder(type);
        for (Object value : values) {
            text.append(' ').append(shown(value));
        }
        return text.toString();
    }

    /** Numbers of 64 bits have no sign; text may hold whatever would end a line. */
    private static String shown(Object value) {
        if (value instanceof String) {
            return '"' + HexFormat.of().formatHex(((String) value).getBytes(StandardCharsets.UTF_8));
        }
        return value instanceof Long ? Long.toUnsignedString((Long) value) : value.toString();
    }
}
