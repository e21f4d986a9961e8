//! Runs the binary as a shell would, in a folder of its own, and waits for what it says.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder to run commands in.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join(inside)
    }

    pub(crate) fn write(&self, inside: &str, text: &str) -> PathBuf {
        let path = self.path(inside);
        fs::write(&path, text).expect("written");
        path
    }

    pub(crate) fn read(&self, inside: &str) -> String {
        fs::read_to_string(self.path(inside)).unwrap_or_else(|error| panic!("{inside}: {error}"))
    }

    pub(crate) fn mode(&self, inside: &str) -> u32 {
        fs::metadata(self.path(inside)).expect("there").permissions().mode() & 0o777
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropeway"));
        command.args(arguments).current_dir(self.folder.path()).env_remove("ROPEWAY_DATA").stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(self.command(arguments).output().expect("the binary runs"))
    }

    /// Runs a command to its end, with this on its standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Done {
        let mut command = self.command(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut stdin = child.stdin.take().expect("piped");
        let input = input.to_owned();
        let writer = thread::spawn(move || {
            // The command may end without reading it all.
            let _ = stdin.write_all(&input);
        });
        let done = Done::of(child.wait_with_output().expect("it ends"));
        writer.join().expect("the writer ends");
        done
    }

    /// Starts `up` on ports that are free and waits until it is up.
    pub(crate) fn up(&self, arguments: &[&str]) -> Up {
        self.up_at("127.0.0.1:0", "127.0.0.1:0", arguments)
    }

    /// Starts `up` on these addresses and waits until it is up.
    pub(crate) fn up_at(&self, listen: &str, admin: &str, arguments: &[&str]) -> Up {
        let mut all = vec!["--json", "up", "--listen", listen, "--admin", admin];
        all.extend(arguments);
        let mut running = self.start(&all);
        let line = running.next_line();
        let announcement: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("`up` said: {line}"));
        assert_eq!(announcement["event"], "up");
        Up { running, announcement }
    }

    /// Starts a command that goes on.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running::of(self.command(arguments))
    }
}

/// A command that ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Done {
    fn of(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { code: output.status.code().expect("no signal ended it"), stdout: output.stdout, stderr }
    }

    /// Asserts that all went well, and gives what was written.
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        String::from_utf8(self.stdout).expect("UTF-8")
    }

    /// Asserts that all went well, and gives the object that was written.
    pub(crate) fn object(self) -> Value {
        let text = self.good();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("no object: {text}"))
    }

    /// Asserts how it ended, and gives the error.
    pub(crate) fn error(self, code: i32) -> String {
        assert_eq!((self.code, self.stdout.as_slice()), (code, &b""[..]), "{}", self.stderr);
        self.stderr
    }
}

/// A command that goes on; dropping it ends it.
pub(crate) struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Running {
    fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let stdout = lines(child.stdout.take().expect("piped"));
        let stderr = lines(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    /// Waits for a line of standard output.
    pub(crate) fn next_line(&mut self) -> String {
        match self.stdout.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("no line within {PATIENCE:?}; {}", self.rest()),
            Err(RecvTimeoutError::Disconnected) => panic!("it ended; {}", self.rest()),
        }
    }

    /// Waits for a line of standard output or for its end.
    pub(crate) fn line_or_end(&mut self) -> Option<String> {
        match self.stdout.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => panic!("neither a line nor an end; {}", self.rest()),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Waits for an object on standard output.
    pub(crate) fn next_object(&mut self) -> Value {
        let line = self.next_line();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no object: {line}"))
    }

    /// Waits for a line of standard error that contains this.
    pub(crate) fn wait_for_log(&mut self, part: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        loop {
            match self.stderr.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("no `{part}` in:\n{}", seen.join("\n")),
            }
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Sends a signal again and again until the process has ended.
    pub(crate) fn signal_until_over(&mut self, name: &str) {
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < until, "it goes on after {name}");
            let _gone_meanwhile = Command::new("kill").args([name, &self.child.id().to_string()]).output();
        }
    }

    /// Ends it at once, so that it cannot say goodbye.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        // Both streams end when the process does.
        while let Ok(line) = self.stderr.recv_timeout(until.saturating_duration_since(Instant::now())) {
            drop(line);
        }
        assert!(Instant::now() < until, "it did not end");
        self.child.wait().expect("it ends")
    }

    fn rest(&self) -> String {
        self.stderr.try_iter().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `up`.
pub(crate) struct Up {
    pub(crate) running: Running,
    pub(crate) announcement: Value,
}

impl Up {
    pub(crate) fn address(&self, which: &str) -> SocketAddr {
        self.announcement[which].as_str().expect("an address").parse().expect("an address")
    }

    /// Gives the arguments with which curl comes to the front door.
    pub(crate) fn curl(&self, place: &Place) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "30", "--cacert"]);
        curl.arg(place.path("ropeway-data/ca.pem")).arg("--connect-to").arg(format!("::{}", self.address("tcp")));
        curl
    }

    /// Starts a request through the front door that is not over soon.
    pub(crate) fn start_curl(&self, place: &Place, url: &str) -> Running {
        let mut curl = self.curl(place);
        curl.args(["--no-buffer", url]);
        Running::of(curl)
    }
}

/// Runs a command of another program to its end and gives what it wrote.
pub(crate) fn output_of(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Finds a program that `make test` installs.
pub(crate) fn python() -> Command {
    Command::new(std::env::var_os("ROPEWAY_TEST_PYTHON").as_deref().unwrap_or(OsStr::new("python3")))
}

/// Python's own web server on a folder; dropping it ends it.
pub(crate) struct WebServer {
    child: Child,
    pub(crate) address: String,
}

impl WebServer {
    pub(crate) fn start(folder: &Path) -> Self {
        let mut command = python();
        command.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "--protocol", "HTTP/1.1", "0"]);
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("python3 runs; without it, run make test");
        let said = lines(child.stdout.take().expect("piped")).recv_timeout(PATIENCE).expect("it says its port");
        // "Serving HTTP on 127.0.0.1 port 34567 (http://127.0.0.1:34567/) ..."
        let port = said.split_whitespace().nth(5).expect("the port is its sixth word").to_owned();
        Self { child, address: format!("127.0.0.1:{port}") }
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service that breaks every answer off in the middle; it lives as long as the tests.
pub(crate) fn cutting_server() -> SocketAddr {
    // The gateway may be gone already.
    server(|mut stream| drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf")))
}

/// A service that answers every request at once, and reads no body and closes nothing for a while.
pub(crate) fn hasty_server() -> SocketAddr {
    let answered = Mutex::new(Vec::new());
    server(move |mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhasty");
        answered.lock().expect("unpoisoned").push(stream);
    })
}

/// A service that reads all there is, and answers nothing.
pub(crate) fn reading_server() -> SocketAddr {
    server(|mut stream| drop(std::io::copy(&mut stream, &mut std::io::sink())))
}

/// Gives every connection to `serve`, behind the head of its request.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") {
                    if (&stream).read_exact(&mut byte).is_err() {
                        return;
                    }
                    head.extend(byte);
                }
                serve(stream);
            });
        }
    });
    address
}

/// Reads lines beside the test, so that a full pipe stops no process and a wait for a line can end.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Longest wait for anything; a busy machine builds and tests several crates at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What `up` left for the other commands.
pub(crate) struct ClientFile {
    folder: PathBuf,
    values: Value,
}

impl ClientFile {
    pub(crate) fn of(place: &Place) -> Self {
        let values = serde_json::from_str(&place.read("ropeway-data/client.json")).expect("an object");
        Self { folder: place.path("ropeway-data"), values }
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.values[key].as_str().unwrap_or_else(|| panic!("no {key} in {}", self.values))
    }

    pub(crate) fn path(&self, key: &str) -> PathBuf {
        self.folder.join(self.text(key))
    }

    fn read(&self, key: &str) -> String {
        fs::read_to_string(self.path(key)).expect("readable")
    }

    /// Makes a client, as the development device.
    pub(crate) fn client(&self) -> ropeway::Builder {
        let pem = self.read("device_key");
        let encoded: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let der = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, encoded).expect("base64");
        ropeway::Client::builder()
            .gateway(self.text("gateway"))
            .trust(self.read("ca"))
            .app(self.text("app"))
            .ticket(self.read("ticket").trim())
            // PKCS #8 ends with the seed (RFC 8410 section 7).
            .device_key(*der.last_chunk::<32>().expect("a key"))
            .access_point(self.values["access_points"][0]["address"].as_str().expect("an address"))
    }
}
