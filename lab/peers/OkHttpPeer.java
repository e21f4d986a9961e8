import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Scanner;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;
import okhttp3.Call;
import okhttp3.Callback;
import okhttp3.Dispatcher;
import okhttp3.MediaType;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;
import okhttp3.internal.Version;

/** OkHttp as it comes: its defaults retry failed connections. Lines of JSON in, lines of JSON out. */
public final class OkHttpPeer {
    private static final String SETTINGS =
        "defaults: retryOnConnectionFailure(true) and 10 s to connect, read and write (square.github.io/okhttp/calls and "
            + "the documentation of OkHttpClient.Builder); callTimeout is the deadline; 64 requests a host at once";
    /** OkHttp lets 5 requests run to one host; a browser's HTTP/2 and every other peer allow more. */
    private static final int REQUESTS_PER_HOST = 64;

    private final OkHttpClient client;

    private OkHttpPeer(OkHttpClient client) {
        this.client = client;
    }

    public static void main(String[] args) throws Exception {
        var trust = trust(System.getenv("LAB_CA"));
        var tls = SSLContext.getInstance("TLS");
        tls.init(null, new TrustManager[] {trust}, null);
        var dispatcher = new Dispatcher();
        dispatcher.setMaxRequestsPerHost(REQUESTS_PER_HOST);
        var client = new OkHttpClient.Builder().sslSocketFactory(tls.getSocketFactory(), trust).dispatcher(dispatcher).build();
        var version = Version.userAgent().replace("okhttp/", "") + " on Java " + System.getProperty("java.version");
        var ready = "{\"ready\":{\"peer\":\"okhttp\",\"version\":" + quote(version) + ",\"settings\":" + quote(SETTINGS) + "}}";
        say(ready);
        new OkHttpPeer(client).serve();
        System.exit(0);
    }

    private void serve() {
        var lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            var line = lines.nextLine();
            if (line.contains("\"quit\"")) {
                return;
            }
            start(line);
        }
    }

    private void start(String line) {
        var started = System.nanoTime();
        var id = text(line, "id");
        var method = text(line, "method");
        var body = method.equals("POST")
            ? RequestBody.create(MediaType.get("application/octet-stream"), new byte[number(line, "body_bytes")])
            : null;
        var builder = new Request.Builder().url(text(line, "url")).method(method, body);
        if (line.contains("\"key\"")) {
            builder.header("idempotency-key", text(line, "key"));
        }
        var request = builder.build();
        var deadline = Duration.ofMillis(number(line, "deadline_ms"));
        var call = client.newBuilder().callTimeout(deadline).build().newCall(request);
        call.enqueue(new Callback() {
            @Override
            public void onFailure(Call call, IOException failure) {
                finish(id, started, "null", 0, quote(failure.toString()));
            }

            @Override
            public void onResponse(Call call, Response response) {
                try (response) {
                    var length = length(response.body().byteStream());
                    finish(id, started, Integer.toString(response.code()), length, "null");
                } catch (IOException failure) {
                    finish(id, started, "null", 0, quote(failure.toString()));
                }
            }
        });
    }

    private static long length(InputStream body) throws IOException {
        var part = new byte[16 * 1024];
        long length = 0;
        for (int read; (read = body.read(part)) >= 0;) {
            length += read;
        }
        return length;
    }

    private static void finish(String id, long started, String status, long length, String error) {
        var ms = (System.nanoTime() - started) / 100_000 / 10.0;
        say("{\"id\":" + quote(id) + ",\"status\":" + status + ",\"bytes\":" + length + ",\"ms\":" + ms + ",\"error\":" + error + "}");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Trusts the platform's authorities where no file is named. */
    private static X509TrustManager trust(String ca) throws Exception {
        KeyStore store = null;
        if (ca != null && !ca.isEmpty()) {
            store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            try (var file = Files.newInputStream(Path.of(ca))) {
                Certificate certificate = CertificateFactory.getInstance("X.509").generateCertificate(file);
                store.setCertificateEntry("lab", certificate);
            }
        }
        var factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return (X509TrustManager) factory.getTrustManagers()[0];
    }

    // The harness writes flat objects whose texts need no escapes, so a pattern reads them and no JSON library is needed.

    private static String text(String line, String key) {
        return find(line, key, "\"([^\"]*)\"");
    }

    private static int number(String line, String key) {
        return Integer.parseInt(find(line, key, "(\\d+)"));
    }

    private static String find(String line, String key, String value) {
        Matcher match = Pattern.compile("\"" + key + "\"\\s*:\\s*" + value).matcher(line);
        if (!match.find()) {
            throw new IllegalArgumentException("no " + key + " in " + line);
        }
        return match.group(1);
    }

    private static String quote(String text) {
        var plain = text.replaceAll("\\p{Cntrl}", " ").replace("\\", "\\\\").replace("\"", "\\\"");
        return "\"" + plain + "\"";
    }
}
