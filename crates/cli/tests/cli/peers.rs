//! Foreign programs before and behind the gateway: curl, nginx, h2load, Python's `websockets` and `aioquic`, an event stream.

use std::process::{Child, Command, Stdio};

use crate::support::{ClientFile, PATIENCE, Place, Up, WebServer, hasty_server, output_of, python, reading_server};

#[test]
fn h2load_runs_ten_thousand_requests_without_an_error() {
    let place = Place::new();
    let up = place.up(&[]);
    let mut h2load = Command::new("h2load");
    h2load.args(["--requests=10000", "--clients=10", "--max-concurrent-streams=10"]);
    h2load.arg(format!("--connect-to={}", up.address("tcp"))).arg("https://demo.test/bytes?n=64");
    let said = String::from_utf8(output_of(&mut h2load)).expect("UTF-8");
    let counts = said.lines().find(|line| line.starts_with("requests:")).expect("it counts requests");
    assert!(counts.contains("10000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    let statuses = said.lines().find(|line| line.starts_with("status codes:")).expect("it counts statuses");
    assert!(statuses.contains("10000 2xx"), "{said}");
}

#[test]
fn over_every_carrier_a_request_to_nginx_and_python_gives_the_bytes_curl_gives() {
    let (place, site) = (Place::new(), Place::new());
    let bytes: Vec<u8> =
        (0..2_000_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(site.path("file.bin"), bytes).expect("written");
    let python = WebServer::start(&site.path(""));
    let nginx = Nginx::start(&site);
    for address in [&python.address, &nginx.address] {
        let direct = output_of(Command::new("curl").args(["-sS", &format!("http://{address}/file.bin")]));
        assert_eq!(direct.len(), 8_000_000);
        let up = place.up(&["--upstream", &format!("api.test=http://{address}")]);
        for carrier in ["quic", "tls", "ws"] {
            let done = place.run(&["request", "--carrier", carrier, "https://api.test/file.bin"]);
            assert_eq!(done.code, 0, "{}", done.stderr);
            assert!(done.stdout == direct, "{carrier} gives {} bytes of {address}", done.stdout.len());
        }
        drop(up);
    }
}

#[test]
fn a_foreign_websocket_client_makes_a_request_and_hears_a_push() {
    let place = Place::new();
    let up = place.up(&[]);
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/protocol/link_client.py");
    let file = ClientFile::of(&place);
    let speak = |what: &[&str]| {
        let mut command = python();
        command.arg(client).arg("--url").arg(format!("wss://{}/.ropeway/link", up.address("tcp")));
        command.args(["--name", file.text("gateway")]).arg("--ca").arg(file.path("ca"));
        command.arg("--ticket").arg(file.path("ticket")).arg("--device-key").arg(file.path("device_key"));
        command.args(what);
        command
    };
    let page = output_of(&mut speak(&["get", "https://demo.test/bytes?n=100000"]));
    assert_eq!(page.len(), 100_000);

    let listening = speak(&["listen", "--count", "1"]).stdout(Stdio::piped()).spawn().expect("python runs");
    let until = std::time::Instant::now() + PATIENCE;
    let mut listening = Ended(Some(listening));
    let mut number = 0;
    // The listener says nothing when its link is up: push until it has heard one.
    while listening.is_running() {
        assert!(std::time::Instant::now() < until, "the listener heard nothing");
        number += 1;
        place.run(&["push", "--to", "user:dev", &format!("hello {number}")]).good();
    }
    assert!(listening.output().contains("hello"));
}

#[test]
fn a_foreign_http3_client_gets_and_posts_on_the_port_of_the_links() {
    let place = Place::new();
    place.write("body", &"0123456789".repeat(100_000));
    place.write("ropeway.toml", "[[route]]\nhost = \"demo.test\"\nupstream = \"builtin:echo\"\n");
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/protocol/h3_client.py");
    let ask = |up: &Up, what: &[&str]| {
        let mut command = python();
        command
            .arg(client)
            .args(["--connect", &up.address("udp").to_string()])
            .arg("--ca")
            .arg(ClientFile::of(&place).path("ca"));
        output_of(command.args(what))
    };
    let up = place.up(&[]);
    assert_eq!(ask(&up, &["https://demo.test/bytes?n=300000"]).len(), 300_000);
    drop(up);
    let up = place.up(&["--config", "ropeway.toml"]);
    let body = place.path("body");
    let echoed = ask(&up, &["--post", body.to_str().expect("UTF-8"), "https://demo.test/echo"]);
    assert!(echoed == std::fs::read(&body).expect("there"), "{} bytes came back", echoed.len());
}

#[test]
fn an_event_stream_reaches_its_client_event_by_event() {
    let place = Place::new();
    let up = place.up(&[]);
    let mut events = up.start_curl(&place, "https://demo.test/stream");
    let first = events.next_line();
    assert!(!first.is_empty(), "the first event comes before the stream ends");
    assert!(events.line_or_end().is_some());
}

#[test]
fn curl_hears_an_answer_that_comes_before_its_body_is_read() {
    let place = Place::new();
    place.write("body", &"x".repeat(3_000_000));
    let routes = [("small.test", reading_server(), 1_000_000), ("hasty.test", hasty_server(), 1 << 30)];
    let routes = routes.map(|(host, upstream, bytes_max)| {
        format!("[[route]]\nhost = \"{host}\"\nupstream = \"http://{upstream}\"\nbody_bytes_max = {bytes_max}\n")
    });
    place.write("ropeway.toml", &routes.concat());
    let up = place.up(&["--config", "ropeway.toml"]);
    let chunked = ["--upload-file", "-", "--header", "transfer-encoding: chunked", "--header", "expect:"];
    let whole = ["--data-binary", "@-", "--header", "expect:"];
    for (host, version, body, answer) in [
        ("small.test", "--http1.1", &chunked[..], "413 body_too_large"),
        ("small.test", "--http1.1", &whole, "413 body_too_large"),
        ("small.test", "--http2", &chunked, "413 body_too_large"),
        ("small.test", "--http2", &whole, "413 "),
        // Over HTTP/2 curl 7.88 may wait for ever behind such an answer, that of nginx too: it stops reading at the
        // answer's end, and so gets no more credit for its body.
        ("hasty.test", "--http1.1", &chunked, "200 hasty"),
        ("hasty.test", "--http1.1", &whole, "200 hasty"),
    ] {
        for number in 0..20 {
            let mut curl = up.curl(&place);
            curl.arg(version).args(body).args(["--request", "POST", "--write-out", " %{http_code}"]);
            curl.arg(format!("https://{host}/")).stdin(std::fs::File::open(place.path("body")).expect("there"));
            let said = String::from_utf8(output_of(&mut curl)).expect("UTF-8");
            let (text, status) = said.rsplit_once(' ').expect("a status");
            assert_eq!(format!("{status} {}", text.trim_end()), answer, "{version} {body:?}, try {number}");
        }
    }
}

/// nginx on a folder; dropping it ends it.
struct Nginx {
    child: Child,
    address: String,
}

impl Nginx {
    fn start(site: &Place) -> Self {
        let port = free_port();
        let folder = site.path("").display().to_string();
        let config = format!(
            "daemon off;\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\nevents {{}}\nhttp {{\n  \
             access_log off;\n  client_body_temp_path {folder}/t1;\n  proxy_temp_path {folder}/t2;\n  \
             fastcgi_temp_path {folder}/t3;\n  uwsgi_temp_path {folder}/t4;\n  scgi_temp_path {folder}/t5;\n  \
             server {{ listen 127.0.0.1:{port}; root {folder}; }}\n}}\n"
        );
        let file = site.write("nginx.conf", &config);
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("nginx");
        command.env("PATH", format!("{path}:/usr/sbin")).arg("-p").arg(&folder).arg("-c").arg(file);
        let child = command.stderr(Stdio::null()).spawn().expect("nginx runs; without it, run make test");
        let address = format!("127.0.0.1:{port}");
        let until = std::time::Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(&address).is_err() {
            assert!(std::time::Instant::now() < until, "nginx does not listen");
            std::thread::yield_now();
        }
        Self { child, address }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that ends by itself, and at the latest with the test.
struct Ended(Option<Child>);

impl Ended {
    fn is_running(&mut self) -> bool {
        self.0.as_mut().is_some_and(|child| child.try_wait().expect("it can be asked").is_none())
    }

    fn output(mut self) -> String {
        let output = self.0.take().expect("once").wait_with_output().expect("it ended");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}
