//! `ropeway request`: what comes through the link is what the service said.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Place, Up, WebServer, output_of};

/// A gateway with the built-in services.
fn builtin(place: &Place) -> Up {
    place.up(&["--upstream", "demo.test=builtin:demo", "--upstream", "echo.test=builtin:echo"])
}

fn error(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("no object: {text}"))
}

#[test]
fn every_carrier_brings_the_bytes_that_curl_gets_from_the_service() {
    let (place, site) = (Place::new(), Place::new());
    let page: String = (0..300_000).map(|number| format!("{number}\n")).collect();
    site.write("page.txt", &page);
    let server = WebServer::start(&site.path(""));
    let _up = place.up(&["--upstream", &format!("api.test=http://{}", server.address)]);
    let direct = output_of(Command::new("curl").args(["-sS", &format!("http://{}/page.txt", server.address)]));
    assert_eq!(direct.len(), page.len());
    for carrier in ["quic", "tls", "ws"] {
        let done = place.run(&["request", "-v", "--carrier", carrier, "https://api.test/page.txt"]);
        assert!(done.stdout == direct, "{carrier}: {} of {} bytes; {}", done.stdout.len(), direct.len(), done.stderr);
        let exchange = format!("* link exchange {carrier} 127.0.0.1:");
        assert!(done.stderr.contains(&exchange), "no `{exchange}` in:\n{}", done.stderr);
        let outcome = done.stderr.lines().find(|line| line.starts_with(&exchange)).expect("a line");
        assert!(outcome.ends_with(": 200 OK"), "{outcome}");
        assert!(done.stderr.contains("< 200 OK\n"), "{}", done.stderr);
    }
}

#[test]
fn the_timeline_is_told_to_programs_with_address_carrier_start_and_duration() {
    let place = Place::new();
    let up = builtin(&place);
    let done = place.run(&["--json", "request", "--carrier", "tls", "https://demo.test/time"]).good();
    let events: Vec<Value> = done.lines().map(error).collect();
    let [head, data, end] = &events[..] else { panic!("{done}") };
    assert_eq!((&head["event"], &head["status"]), (&json!("head"), &json!(200)));
    let actions: Vec<_> = head["timeline"].as_array().expect("steps").iter().map(|step| &step["action"]).collect();
    assert_eq!(actions, ["connect", "greet", "exchange"]);
    for step in head["timeline"].as_array().expect("steps") {
        assert_eq!((&step["way"], &step["carrier"], &step["error"]), (&json!("link"), &json!("tls"), &Value::Null));
        assert_eq!(step["address"], up.address("tcp").to_string());
        assert!(step["started_ms"].is_number() && step["duration_ms"].is_number(), "{step}");
        let told = if step["action"] == "exchange" {
            (json!(200), json!("executed"))
        } else {
            (Value::Null, json!("nothing_sent"))
        };
        assert_eq!((&step["status"], &step["fate"]), (&told.0, &told.1));
    }
    let text = data["text"].as_str().expect("text");
    assert_eq!((&data["event"], &end["event"], &end["bytes"]), (&json!("data"), &json!("end"), &json!(text.len())));
}

#[test]
fn a_get_that_its_service_drops_runs_there_twice_by_all_ways_together() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback binds");
    let service = listener.local_addr().expect("bound");
    let heads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&heads);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let read = (&stream).read(&mut [0; 4096]).unwrap_or(0);
            counted.fetch_add(usize::from(read > 0), Ordering::SeqCst);
        }
    });
    let place = Place::new();
    let _up = place.up(&["--upstream", &format!("api.test=http://{service}")]);
    let done = place.run(&["request", "-v", "https://api.test/"]);
    assert!(done.stderr.contains("502 Bad Gateway: the service broke off"), "{}", done.stderr);
    assert!(done.stderr.contains("* link exchange"), "{}", done.stderr);
    assert_eq!(heads.load(Ordering::SeqCst), 2, "{}", done.stderr);
}

#[test]
fn method_headers_and_body_reach_the_service() {
    let place = Place::new();
    let _up = builtin(&place);
    let done = place.run(&["request", "-i", "-X", "PUT", "-H", "content-type: a/b", "-d", "x=1", "echo.test/p?q=1"]);
    let text = done.good();
    for part in ["200 OK\n", "echo-method: PUT\n", "echo-path: /p?q=1\n", "content-type: a/b\n", "\n\nx=1"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    let text = place.run(&["request", "-i", "-d", "x=1", "https://echo.test/"]).good();
    for part in ["echo-method: POST\n", "content-type: application/x-www-form-urlencoded\n"] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn a_body_streams_from_a_file_or_standard_input_and_back() {
    let place = Place::new();
    let _up = builtin(&place);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| (number.wrapping_mul(number) >> 7) as u8).collect();
    std::fs::write(place.path("body"), &bytes).expect("written");
    for carrier in ["quic", "tls", "ws"] {
        let piped = place.run_with_input(&["request", "--carrier", carrier, "-d", "@-", "echo.test"], &bytes);
        assert!(piped.stdout == bytes, "{carrier}: {} bytes; {}", piped.stdout.len(), piped.stderr);
        place.run(&["request", "--carrier", carrier, "-d", "@body", "-o", "answer", "echo.test"]).good();
        assert!(std::fs::read(place.path("answer")).expect("written") == bytes, "{carrier}");
    }
    let error = place.run(&["request", "-d", "@nowhere", "echo.test"]).error(1);
    assert!(error.starts_with("ropeway: cannot read nowhere: "), "{error}");
}

#[test]
fn the_first_bytes_are_written_before_the_last_have_come() {
    let place = Place::new();
    let _up = builtin(&place);
    let mut request = place.start(&["request", "https://demo.test/stream"]);
    // The service sends ten events, one a second; after the first there are nine to come.
    let first = request.next_line();
    assert!(first.starts_with("data:") || first.starts_with("event:") || first.starts_with("id:"), "{first}");
    request.kill();
}

#[test]
fn an_error_status_fails_only_where_it_was_asked_to() {
    let place = Place::new();
    let _up = builtin(&place);
    assert_eq!(place.run(&["request", "demo.test/nothing"]).good(), "nothing here; try /\n");
    assert_eq!(
        place.run(&["request", "--fail", "demo.test/nothing"]).error(22),
        "ropeway: the answer's status is 404 Not Found\n"
    );
}

#[test]
fn a_body_cut_by_the_service_is_no_success_and_what_came_before_the_cut_is_written() {
    let place = Place::new();
    let server = crate::support::cutting_server();
    let _up = place.up(&["--upstream", &format!("cut.test=http://{server}")]);
    for carrier in ["quic", "tls", "ws"].repeat(4) {
        let done = place.run(&["--json", "request", "--carrier", carrier, "-o", "answer", "cut.test"]);
        let cut = error(&done.stderr);
        assert_eq!(
            (done.code, &cut["error"], &cut["side"]),
            (18, &json!("body_cut"), &json!("service")),
            "{carrier}: {cut}"
        );
        let written = std::fs::read(place.path("answer")).unwrap_or_default();
        assert_eq!(written, b"half", "{carrier}");
        assert_eq!(place.run(&["request", "--carrier", carrier, "cut.test"]).stdout, b"half", "{carrier}");
    }
}

#[test]
fn each_way_through_the_gateway_can_be_asked_for() {
    let place = Place::new();
    let _up = place.up(&["--upstream", "echo.test=builtin:echo"]);
    for way in ["link", "address", "pipe"] {
        let done = place.run(&["request", "--way", way, "-v", "--data", "pear", "https://echo.test/"]);
        assert_eq!(done.stdout, b"pear", "{way}: {}", done.stderr);
        assert!(done.stderr.contains(&format!("* {way} exchange")), "{}", done.stderr);
    }
    let text = place.run(&["request", "--way", "plain", "https://echo.test/"]).error(1);
    assert!(text.contains("plain: no route of the gateways allows it"), "{text}");
    place.write("large", &"x".repeat(1_500_000));
    let text = place.run(&["request", "--way", "pipe", "--data", "@large", "https://echo.test/"]).error(1);
    assert!(text.contains("pipe: the length of the body is not known beforehand"), "{text}");
    let text = place.run(&["request", "--way", "boat", "https://echo.test/"]).error(2);
    assert!(text.contains("expected one of link, name, address, pipe, plain, original"), "{text}");
}

/// Changes what `up` left for the other commands.
fn rewrite(place: &Place, change: impl FnOnce(&mut Value)) {
    let mut client: Value = serde_json::from_str(&place.read("ropeway-data/client.json")).expect("an object");
    change(&mut client);
    place.write("ropeway-data/client.json", &client.to_string());
}

/// An address at which nobody listens.
fn closed() -> String {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("bound").to_string()
}

#[test]
fn where_no_link_comes_up_the_access_list_leads_on_by_itself() {
    let place = Place::new();
    let up = place.up(&["--upstream", "echo.test=builtin:echo"]);
    let gateway = up.address("tcp").to_string();
    // QUIC, the only carrier that is allowed, leads nowhere; the list knows better.
    rewrite(&place, |client| {
        client["access_points"] = json!([
            { "address": closed(), "carriers": ["quic"] },
            { "address": gateway, "carriers": ["tls"] },
        ]);
        client["pipe_keys"] = json!([]);
    });
    let done = place.run(&["request", "-v", "--carrier", "quic", "-d", "pear", "https://echo.test/"]);
    assert_eq!((done.code, &done.stdout[..]), (0, &b"pear"[..]), "{}", done.stderr);
}

#[test]
fn a_list_that_is_refused_is_told_and_a_pipe_needs_none() {
    let place = Place::new();
    let _up = place.up(&["--upstream", "echo.test=builtin:echo"]);
    let foreign = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
    rewrite(&place, |client| client["list_keys"][0]["public_key"] = foreign.into());
    let done = place.run(&["request", "--way", "pipe", "-d", "pear", "https://echo.test/"]);
    assert_eq!((done.code, &done.stdout[..]), (0, &b"pear"[..]), "{}", done.stderr);
    let text = place.run(&["request", "-v", "--way", "plain", "https://echo.test/"]).error(1);
    let refused = "gave an access list that is not believed";
    let shown = text.lines().filter(|line| line.contains(refused)).count();
    assert!(shown >= 2 && text.contains("signature of the access list"), "as an event, and in the error: {text}");
    assert!(!text.contains("no route"), "{text}");
}

#[test]
fn what_a_device_lacks_is_named_with_how_to_get_it() {
    let place = Place::new();
    let _up = place.up(&[]);
    for (arguments, file, hint) in [
        (&["request", "--ticket", "t.jwt", "demo.test"][..], "t.jwt", "`ropeway ticket --out FILE` issues one"),
        (&["request", "demo.test"], "ropeway-data/ca.pem", "`ropeway up`"),
        (&["request", "demo.test"], "ropeway-data/ticket", "`ropeway up`"),
    ] {
        let path = place.path(file);
        let kept = std::fs::read(&path).ok();
        let _ = std::fs::remove_file(&path);
        let text = place.run(arguments).error(1);
        assert!(text.contains(file) && text.contains(hint), "{text}");
        if let Some(kept) = kept {
            std::fs::write(&path, kept).expect("written");
        }
    }
}

#[test]
fn no_link_stays_behind_when_the_command_has_ended() {
    let place = Place::new();
    let up = place.up(&[]);
    for carrier in ["quic", "tls", "ws"] {
        for _ in 0..3 {
            place.run(&["request", "--carrier", carrier, "https://demo.test/"]).good();
        }
    }
    // A connection that ends without a word is given up after 20 s and more.
    let open = |up_to: u64| {
        let until = Instant::now() + Duration::from_secs(6);
        loop {
            let url = format!("http://{}/metrics", up.address("admin"));
            let metrics = output_of(Command::new("curl").args(["-sS", &url]));
            let text = String::from_utf8_lossy(&metrics);
            let links = text.lines().filter(|line| line.starts_with("ropeway_links{"));
            let count: u64 = links.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
            if count <= up_to || Instant::now() >= until {
                return count;
            }
        }
    };
    assert_eq!(open(0), 0, "after answers that were read to their end");
    // The goodbye of a connection on which much is still arriving may be lost, if seldom.
    let kept = (0..GOODBYES).find(|lost| {
        let mut command = place.command(&["request", "--carrier", "quic", "https://demo.test/bytes?n=50000000"]);
        let mut cut = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
        let mut output = cut.stdout.take().expect("piped");
        output.read_exact(&mut [0]).expect("the body begins");
        drop(output);
        cut.wait().expect("it ends");
        open(*lost) <= *lost
    });
    assert!(kept.is_some(), "no goodbye of {GOODBYES} arrived");
}

/// How often a goodbye is tried amid an answer.
const GOODBYES: u64 = 3;

#[test]
fn a_request_out_of_time_ends_then() {
    let place = Place::new();
    let _up = builtin(&place);
    let text = place.run(&["request", "--max-time", "0.5", "https://demo.test/slow?ms=30000"]).error(28);
    assert!(text.starts_with("ropeway: timed out waiting for the answer after 500 ms"), "{text}");
    assert!(!text.contains(" ms; link"), "the timeline is for -v: {text}");
}

#[test]
fn a_request_out_of_time_tells_what_became_of_it_and_what_was_tried() {
    let place = Place::new();
    let _up = builtin(&place);
    for seconds in ["0.3", "0.5", "1"] {
        let arguments = ["request", "-v", "--max-time", seconds, "https://demo.test/slow?ms=30000"];
        let text = place.run(&arguments).error(28);
        assert!(text.contains("the request may have been executed"), "{seconds}: {text}");
        assert!(text.contains("* link exchange"), "{seconds}: {text}");
    }
}

#[test]
fn the_time_for_the_whole_bounds_the_goodbye_too() {
    for carrier in ["quic", "tls"] {
        let place = Place::new();
        let up = builtin(&place);
        let began = Instant::now();
        let arguments = ["request", "--carrier", carrier, "--max-time", "2", "https://demo.test/stream"];
        let mut request = place.start(&arguments);
        request.next_line();
        // What is stopped takes no goodbye.
        up.running.signal("-STOP");
        let status = request.wait();
        let took = began.elapsed();
        up.running.signal("-CONT");
        assert_eq!(status.code(), Some(28));
        assert!((1_900..2_600).contains(&took.as_millis()), "{carrier}: {took:?}");
    }
}

#[test]
fn a_stopped_gateway_is_named_with_what_was_tried() {
    let place = Place::new();
    let mut up = builtin(&place);
    up.running.kill();
    let arguments = ["request", "--max-time", "2", "--carrier", "tls", "--way", "link", "demo.test"];
    let text = place.run(&arguments).error(1);
    assert!(text.contains("no way to demo.test: "), "{text}");
    assert!(text.contains("Connection refused") && text.ends_with("is `ropeway up` running?\n"), "{text}");
    let mut verbose = arguments.to_vec();
    verbose.push("-v");
    let text = place.run(&verbose).error(1);
    assert!(text.contains("* link connect tls 127.0.0.1:"), "{text}");
}

#[test]
fn a_gateway_that_another_authority_vouches_for_is_named_at_once() {
    let (place, other) = (Place::new(), Place::new());
    let (_up, _other) = (builtin(&place), other.up(&[]));
    std::fs::copy(other.path("ropeway-data/ca.pem"), place.path("ropeway-data/ca.pem")).expect("copied");
    for carrier in ["quic", "tls", "ws"] {
        let done = place.run(&["--json", "request", "--way", "link", "--carrier", carrier, "demo.test"]);
        assert_eq!((done.code, error(&done.stderr)["error"].as_str()), (1, Some("untrusted")), "{}", done.stderr);
        let text = place.run(&["request", "--way", "link", "--carrier", carrier, "demo.test"]).error(1);
        assert!(text.contains("invalid peer certificate") && text.contains("ca.pem vouches for"), "{text}");
        assert_eq!(text.matches("the last attempt").count(), 1, "{text}");
    }
}

#[test]
fn where_the_gateway_takes_no_links_one_of_another_name_does_that_its_list_names() {
    let (place, other) = (Place::new(), Place::new());
    // Both have one authority and one issuer of tickets, each its own name and certificate.
    builtin(&place).running.kill();
    std::fs::create_dir(other.path("ropeway-data")).expect("made");
    for file in ["ca.key", "ca.pem", "issuer.key"] {
        let inside = format!("ropeway-data/{file}");
        std::fs::copy(place.path(&inside), other.path(&inside)).expect("copied");
    }
    other.write("ropeway.toml", "[gateway]\nname = \"other.test\"\n");
    let demo = ["--upstream", "demo.test=builtin:demo", "--config", "ropeway.toml"];
    let there = other.up(&demo);
    let [tcp, closed] = [there.address("tcp"), std::net::SocketAddr::from(([127, 0, 0, 1], 9))];
    let unit = "[[unit]]\nname = \"other\"\n[[unit.access_point]]\ngateway = \"other.test\"\n";
    place.write("ropeway.toml", &format!("{unit}address = \"{tcp}\"\nspeaks = [\"ws\"]\n"));
    let here = place.up(&demo);
    let mut file: Value = serde_json::from_str(&place.read("ropeway-data/client.json")).expect("an object");
    file["access_points"] = json!([
        { "address": closed, "carriers": ["ws"] },
        { "address": here.address("tcp"), "carriers": ["tls"] },
    ]);
    place.write("ropeway-data/client.json", &file.to_string());
    let done = place.run(&["request", "-v", "--way", "link", "--carrier", "ws", "https://demo.test/time"]);
    assert!(done.code == 0 && done.stderr.contains(&format!("* link exchange ws {tcp}")), "{}", done.stderr);
}

#[test]
fn what_can_never_be_sent_is_wrong_on_the_command_line() {
    let place = Place::new();
    let _up = builtin(&place);
    for (url, told) in [
        ("", "it is empty; write one such as https://"),
        ("https://", "write one such as https://"),
        ("ftp://demo.test/", "the scheme is neither https nor http"),
        ("demo.test:99999", "`99999` is no port: ports go from 1 to 65535"),
        ("https://demo.test:/", "there is a colon and no port behind it"),
        ("https://demo.test:0/", "port 0 is none that can be connected to"),
        ("https://user:secret@demo.test/", "user information has no place in a URL"),
    ] {
        let text = place.run(&["request", url]).error(2);
        assert!(text.contains(told) && !text.contains("secret"), "{url:?}: {text}");
    }
    for header in ["host: other.test", "connection: close", "transfer-encoding: chunked", "no colon"] {
        let text = place.run(&["request", "-H", header, "demo.test"]).error(2);
        assert!(text.contains("--header"), "{header}: {text}");
    }
}

#[test]
fn a_host_that_the_gateway_does_not_serve_is_called_directly_and_plain_http_only_where_allowed() {
    let (place, site) = (Place::new(), Place::new());
    site.write("page.txt", "direct");
    let server = WebServer::start(&site.path(""));
    let _up = builtin(&place);
    let url = format!("http://{}/page.txt", server.address);
    let text = place.run(&["request", &url]).error(1);
    assert!(
        text.contains("over plain http, which was not allowed; the gateway serves demo.test, echo.test alone; "),
        "{text}"
    );
    assert!(text.contains("with --plain-http") && !text.contains("was called"), "{text}");
    assert_eq!(place.run(&["request", "--plain-http", &url]).good(), "direct");
}

#[test]
fn another_ticket_and_key_can_be_shown_and_wrong_ones_are_refused() {
    let place = Place::new();
    let _up = builtin(&place);
    place.run(&["ticket", "--user", "ada", "--device-key", "generate", "--out", "ada"]).good();
    place.run(&["request", "--ticket", "ada", "--device-key", "ada.key", "demo.test/time"]).good();

    for (arguments, code) in [
        (&["--ticket", "ada"][..], "a key that is not the ticket's"),
        (&["--ticket", "foreign"], "a foreign app"),
        (&["--ticket", "none"], "a ticket in form alone"),
    ] {
        place.run(&["ticket", "--app", "other", "--out", "foreign"]).good();
        place.write("none", "eyJhIjoxfQ.eyJhIjoxfQ.c2ln");
        let all = [&["--json", "request", "--way", "link", "--max-time", "20", "demo.test/time"], arguments].concat();
        let refused = error(&place.run(&all).error(1));
        assert_eq!((&refused["error"], &refused["side"]), (&json!("refused"), &json!("local")), "{code}: {refused}");
        // By name or address the gateway asks for no ticket, which does not hide that this one is of no use.
        let done = place.run(&[&["request", "--max-time", "20", "demo.test/time"], arguments].concat());
        assert!(done.code == 0 && done.stderr.contains("the gateway refused the link: "), "{code}: {}", done.stderr);
    }
}
