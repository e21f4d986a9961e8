//! Faults do to a real program what their scenario says.

use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
    thread,
    time::Duration,
};

use ropeway_lab::{Place, lab::Lab};

use crate::support::{curl, labs, ropeway_lab, start, text};

/// Runs curl in a scenario and gives its exit code and what it printed.
fn try_curl(scenario: &str, arguments: &[&str]) -> (i32, String) {
    let lab = start(scenario);
    lab.begin().expect("the scenario begins");
    let output = curl(&lab, arguments);
    assert!(lab.report().void.is_none_or(|reason| reason.contains("late")), "{:?}", lab.report());
    (output.status.code().unwrap_or(-1), text(&output.stdout))
}

#[test]
fn names_are_answered_wrongly() {
    let Some(_labs) = labs() else { return };
    let url = "https://api.test/";
    assert_eq!(try_curl("dns-bad", &["-m", "10", url]).0, CURL_CERTIFICATE);
    assert_eq!(try_curl("dns-bad", &["-m", "10", "http://api.test/"]).1, "a page of advertisements\n");
    assert_eq!(try_curl("dns-bad:loopback", &["-m", "10", url]).0, CURL_CONNECT);
    assert_eq!(try_curl("dns-bad:nxdomain", &["-m", "10", url]).0, CURL_RESOLVE);
    assert!([CURL_RESOLVE, CURL_TIMEOUT].contains(&try_curl("dns-bad:silent", &["-m", "2", url]).0));
}

#[test]
fn tls_is_disturbed() {
    let Some(_labs) = labs() else { return };
    let url = "https://api.test/";
    assert_eq!(try_curl("tls-bad", &["-m", "2", url]).0, CURL_TIMEOUT);
    assert_eq!(try_curl("tls-bad:reset", &["-m", "10", url]).0, CURL_TLS);
    assert_eq!(try_curl("tls-bad:wrong-certificate", &["-m", "10", url]).0, CURL_CERTIFICATE);
}

#[test]
fn single_addresses_and_balancers_are_bad() {
    let Some(_labs) = labs() else { return };
    let at = |host: u8| format!("api.test:443:198.18.0.{host}");
    let get = |scenario, host, seconds| {
        try_curl(scenario, &["-m", seconds, "--resolve", &at(host), "-w", "%{http_code}", "https://api.test/bytes/0"])
    };
    assert_eq!(get("one-bad-ip", 10, "2").0, CURL_TIMEOUT);
    assert_eq!(get("one-bad-ip", 11, "2").0, CURL_TIMEOUT);
    assert_eq!(get("one-bad-ip", 11, "10"), (0, "200".to_owned()), "a slow address answers in the end");
    assert_eq!(get("one-bad-ip", 12, "10").0, CURL_CONNECT);
    assert_eq!(get("one-bad-ip", 13, "10"), (0, "200".to_owned()));
    assert_eq!(get("lb-broken", 10, "2").0, CURL_TIMEOUT);
    assert_eq!(get("lb-broken:reset", 10, "10").0, CURL_TLS);
    assert_eq!(get("lb-broken:bad-gateway", 10, "10").1, "bad gateway\n502");
}

#[test]
fn gateways_of_one_site_are_cut_off_from_their_backend_and_another_site_serves() {
    let Some(_labs) = labs() else { return };
    let lab = start("island");
    lab.begin().expect("the scenario begins");
    let get = |address: &str, path: &str, seconds: &str| {
        let (at, url) = (format!("api.test:443:{address}"), format!("https://api.test{path}"));
        let output = curl(&lab, &["-m", seconds, "--resolve", &at, &url]);
        (output.status.code(), text(&output.stdout))
    };
    assert_eq!(get("198.18.0.10", "/health", "10"), (Some(0), "well\n".to_owned()));
    assert_eq!(get("198.18.0.10", "/bytes/3", "2").0, Some(CURL_TIMEOUT));
    assert_eq!(get("198.19.0.10", "/bytes/3", "10"), (Some(0), "xxx".to_owned()));
}

#[test]
fn a_wifi_that_passes_nothing_stands_beside_a_link_that_does() {
    let Some(_labs) = labs() else { return };
    for scenario in ["fake-wifi", "fake-wifi:portal"] {
        let lab = start(scenario);
        lab.begin().expect("the scenario begins");
        let get = |arguments: &[&str]| curl(&lab, arguments).status.code();
        let known = "api.test:443:198.18.0.10";
        let by_cell = ["-m", "10", "--interface", "cell0", "--resolve", known, "https://api.test/bytes/3"];
        assert_eq!(get(&by_cell), Some(0), "{scenario}");
        for port in [443, 8443] {
            let url = format!("https://198.18.0.10:{port}/bytes/3");
            assert_eq!(get(&["-m", "2", "--insecure", &url]), Some(CURL_TIMEOUT), "{scenario}, port {port}");
        }
    }
    let (code, head) = try_curl("fake-wifi:portal", &["-m", "10", "-D", "-", "http://api.test/"]);
    assert!(code == 0 && head.contains("302 Found"), "names are answered, and plain HTTP is led to the portal: {head}");
}

#[test]
fn plain_http_is_meddled_with() {
    let Some(_labs) = labs() else { return };
    let (_, altered) = try_curl("content-tamper", &["-m", "10", "http://api.test/bytes/100"]);
    assert!(altered.len() == 100 && altered.contains("<script"), "{altered}");
    let twice = ["-m", "2", "http://api.test/bytes/9", "http://api.test/bytes/9"];
    assert_eq!(try_curl("old-middlebox", &twice), (CURL_TIMEOUT, "xxxxxxxxx".to_owned()));
    let (code, piece) = try_curl("old-middlebox:no-chunked", &["-m", "10", "http://api.test/stream/9"]);
    assert!(code != 0 && piece.starts_with("chunk 0\n"), "{code}, {piece}");
}

#[test]
fn v6_is_there_and_does_not_work() {
    let Some(_labs) = labs() else { return };
    let big = "https://api.test/bytes/20000";
    for scenario in ["v6-broken", "v6-broken:all", "v6-broken:mtu"] {
        assert_eq!(try_curl(scenario, &["-6", "-m", "2", big]).0, CURL_TIMEOUT, "{scenario}");
        assert_eq!(try_curl(scenario, &["-4", "-m", "10", big]).0, 0, "{scenario}");
    }
    assert_eq!(try_curl("wifi-good", &["-4", "-m", "10", big]).0, 0);
}

/// Asks for the front's health, `meanwhile` does something, and asks again on the same connection; gives both answers.
fn ask_twice(lab: &Lab, meanwhile: impl FnOnce()) -> [String; 2] {
    let mut command = lab.command(Place::Client, "bash").expect("bash is installed");
    command.args(["-c", ASK_TWICE]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("bash can be started");
    let (mut stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let mut lines = BufReader::new(stdout).lines().map(|line| line.expect("text").trim().to_owned());
    let first = lines.next().expect("the first answer");
    meanwhile();
    writeln!(stdin, "go on").expect("bash waits for it");
    let second = lines.next().expect("the second answer");
    child.wait().expect("it was started here");
    [first, second]
}

#[test]
fn a_connection_does_not_outlive_what_the_nat_knows_of_it() {
    let Some(_labs) = labs() else { return };
    let idle = || thread::sleep(Duration::from_secs(11));
    for (scenario, second) in [("nat-short:ci", "none"), ("lte-walk", "HTTP/1.1 200 OK")] {
        let lab = start(scenario);
        lab.begin().expect("the scenario begins");
        assert_eq!(ask_twice(&lab, idle), ["HTTP/1.1 200 OK", second], "{scenario}");
    }
}

#[test]
fn a_connection_hears_nothing_more_after_a_new_mapping_or_address() {
    let Some(_labs) = labs() else { return };
    let lab = start("lte-walk");
    lab.begin().expect("the scenario begins");
    for change in ["nat=rebind", "address=new"] {
        let set = || {
            let output = ropeway_lab(&["set", "--lab", &lab.number().to_string(), change]).output();
            assert!(output.expect("it can be started").status.success(), "{change}");
        };
        assert_eq!(ask_twice(&lab, set), ["HTTP/1.1 200 OK", "none"], "{change}");
        assert_eq!(curl(&lab, &["-m", "10", "https://api.test/"]).status.code(), Some(0), "{change}");
    }
}

#[test]
fn the_other_link_takes_over_when_an_interface_goes_down() {
    let Some(_labs) = labs() else { return };
    let lab = start("wifi-to-cell");
    let begun = lab.begin().expect("the scenario begins");
    let by = || text(&curl(&lab, &["-m", "10", "-o", "/dev/null", "-w", "%{local_ip}", "http://198.18.0.10/"]).stdout);
    assert_eq!(by(), "192.168.43.2");
    // Wi-Fi goes down at 3 s.
    while by() != "10.64.0.2" {
        assert!(begun.elapsed() < PATIENCE, "the requests still go by Wi-Fi");
    }
    assert!(begun.elapsed() > Duration::from_secs(3));
}

/// Sends two requests on one connection, the second when it is told to, and prints the first line of each answer.
const ASK_TWICE: &str = r#"
exec 3<>/dev/tcp/198.18.0.10/80
ask() {
    printf 'HEAD /health HTTP/1.1\r\nhost: a\r\n\r\n' >&3
    read -r -t 3 answer <&3 && echo "$answer" || echo none
}
ask
while read -r -t 1 rest <&3; do :; done
read -r go_on
ask
"#;

/// How long a test waits for what a scenario does.
const PATIENCE: Duration = Duration::from_secs(60);

/// curl's exit codes.
const CURL_RESOLVE: i32 = 6;
const CURL_CONNECT: i32 = 7;
const CURL_TIMEOUT: i32 = 28;
const CURL_TLS: i32 = 35;
const CURL_CERTIFICATE: i32 = 60;
