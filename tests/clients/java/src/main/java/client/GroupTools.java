package client;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.internals.Exit;
import org.apache.kafka.tools.GroupsCommand;
import org.apache.kafka.tools.consumer.ConsoleConsumer;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

/** Kafka's tools for groups by their main methods, many in one process: a command a line in, exit status and output out. */
public final class GroupTools {
    private static final class Exited extends RuntimeException {
        final int status;

        Exited(int status, String message) {
            super(message);
            this.status = status;
        }
    }

    /** The first exit of the tool in hand: some catch what it throws and exit once more. */
    private static Exited exited;

    private interface Main {
        void run(String[] args) throws Exception;
    }

    private GroupTools() {}

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure(GroupTools::exit);
        Exit.setHaltProcedure(GroupTools::exit);
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            answers.println(run(tool(words[0]), Arrays.copyOfRange(words, 1, words.length)));
            answers.flush();
        }
    }

    private static void exit(int status, String message) {
        if (exited == null) {
            exited = new Exited(status, message);
        }
        throw exited;
    }

    private static Main tool(String name) {
        return switch (name) {
            case "consumer-groups" -> ConsumerGroupCommand::main;
            case "groups" -> GroupsCommand::main;
            case "console-consumer" -> ConsoleConsumer::main;
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static String run(Main tool, String[] args) {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(bytes, true);
        System.setOut(both);
        System.setErr(both);
        int status = 0;
        exited = null;
        try {
            tool.run(args);
        } catch (Exited expected) {
            both.println(String.valueOf(expected.getMessage()));
        } catch (Throwable error) {
            status = -1;
            error.printStackTrace(both);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        status = exited == null ? status : exited.status;
        return status + "\t" + Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
