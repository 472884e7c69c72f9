import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

/**
 * Calls the real pulsar-admin again and again, for as long as its standard input is open.
 *
 * <p>A line of input is an admin URL and the arguments of one call, between tabs. A line of output is what became of
 * it: exit code, standard output and standard error, between tabs, the latter two in Base64.
 */
public class AdminCalls {

    /** What {@code PulsarAdminTool.main} runs, without the end of the whole JVM behind each call. */
    private static class Tool extends PulsarAdminTool {

        Tool(Properties configuration) throws Exception {
            super(configuration);
        }

        int call(String[] arguments) {
            return run(arguments) ? 0 : 1;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        Map<String, Tool> tools = new HashMap<>();
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] call = line.split("\t", -1);
            if (!tools.containsKey(call[0])) {
                tools.put(call[0], new Tool(configuration(call[0])));
            }
            said.reset();
            complained.reset();
            int code = tools.get(call[0]).call(Arrays.copyOfRange(call, 1, call.length));
            answers.println(code + "\t" + base64(said) + "\t" + base64(complained));
        }
        System.exit(0);
    }

    private static Properties configuration(String adminUrl) {
        Properties configuration = new Properties();
        configuration.setProperty("webServiceUrl", adminUrl);
        return configuration;
    }

    private static String base64(ByteArrayOutputStream text) {
        return Base64.getEncoder().encodeToString(text.toByteArray());
    }
}
