import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.pulsar.common.api.proto.BaseCommand;

/** Reads a command in hexadecimal from each line of its input as a broker would, and prints what it gets to see. */
public class ReadCommands {

    private static final List<String> FIELDS = List.of("ProducerId", "ConsumerId", "RequestId", "SequenceId",
            "NumMessages", "MessagePermits", "Topic", "Namespace", "Subscription", "ProducerName", "ConsumerName",
            "ConsumerEpoch");
    private static Map<BaseCommand.Type, Method> ACCESSORS;

    public static void main(String[] arguments) throws Exception {
        ACCESSORS = accessors();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(read(HexFormat.of().parseHex(line)));
        }
    }

    private static String read(byte[] command) throws ReflectiveOperationException {
        ByteBuf buffer = Unpooled.wrappedBuffer(command);
        BaseCommand envelope = new BaseCommand();
        try {
            envelope.parseFrom(buffer, command.length);
            return told(envelope);
        } catch (InvocationTargetException | RuntimeException error) {
            return "none";
        }
    }

    /** The type, and what of `FIELDS` the command of that type has. */
    private static String told(BaseCommand envelope) throws ReflectiveOperationException {
        Object command = ACCESSORS.get(envelope.getType()).invoke(envelope);
        StringBuilder text = new StringBuilder().append(envelope.getType().getValue());
        for (String field : FIELDS) {
            Method get = method(command, "get" + field);
            if (get != null) {
                Method has = method(command, "has" + field);
                boolean isThere = field.equals("NumMessages") || has == null || (boolean) has.invoke(command);
                text.append(' ').append(field).append('=').append(isThere ? shown(get.invoke(command)) : shown(""));
            }
        }
        return text.toString();
    }

    private static Method method(Object of, String name) {
        try {
            return of.getClass().getMethod(name);
        } catch (NoSuchMethodException error) {
            return null;
        }
    }

    /** By type; the names of some do not follow from the type's. */
    private static Map<BaseCommand.Type, Method> accessors() throws ReflectiveOperationException {
        Map<BaseCommand.Type, Method> found = new HashMap<>();
        for (BaseCommand.Type type : BaseCommand.Type.values()) {
            String name = Arrays.stream(type.name().split("_"))
                    .map(word -> word.charAt(0) + word.substring(1).toLowerCase()).collect(Collectors.joining());
            String get = "get" + name.replace("PartitionedMetadata", "PartitionMetadata");
            found.put(type, BaseCommand.class.getMethod(
                    get.equals("getLookup") || get.equals("getLookupResponse")
                            ? get.replace("Lookup", "LookupTopic") : get));
        }
        return found;
    }

    /** Numbers of 64 bits have no sign; text may hold whatever would end a line. */
    private static String shown(Object value) {
        if (value instanceof String) {
            return '"' + HexFormat.of().formatHex(((String) value).getBytes(StandardCharsets.UTF_8));
        }
        return value instanceof Long ? Long.toUnsignedString((Long) value) : value.toString();
    }
}
