//! Other processes and the kernel, as /proc shows them.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::BenchError;

/// A process that a benchmark started; dropping it ends it.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a program whose standard output can be read and whose standard error is this process's own.
    pub(super) fn start(name: &'static str, command: &mut Command) -> Result<Self, BenchError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|source| BenchError::Process { name, source })?;
        let stdout = child.stdout.take().map(BufReader::new);
        Ok(Self { name, child, stdout })
    }

    /// Waits for a line of its standard output.
    pub(super) fn line(&mut self) -> Result<String, BenchError> {
        let mut line = String::new();
        let read = self.stdout.as_mut().map(|stdout| stdout.read_line(&mut line));
        match read {
            Some(Ok(length)) if length > 0 => Ok(line),
            Some(_) | None => Err(BenchError::Ended { name: self.name }),
        }
    }

    /// Waits for its end and gives what it wrote until then.
    pub(super) fn output(mut self) -> Result<String, BenchError> {
        let mut text = String::new();
        if let Some(stdout) = &mut self.stdout {
            stdout.read_to_string(&mut text).map_err(|source| BenchError::Process { name: self.name, source })?;
        }
        let status = self.child.wait().map_err(|source| BenchError::Process { name: self.name, source })?;
        if status.success() { Ok(text) } else { Err(BenchError::Ended { name: self.name }) }
    }

    /// Says whether it still runs.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Gives the processor time it has used, its own and the kernel's on its behalf.
    pub(super) fn cpu(&self) -> Result<Duration, BenchError> {
        let text = self.proc("stat")?;
        // The name in brackets may hold spaces; utime and stime are fields 14 and 15 (proc(5)).
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
        let mut ticks = fields.split_whitespace().skip(11).map_while(|field| field.parse::<u64>().ok());
        let (Some(user), Some(system)) = (ticks.next(), ticks.next()) else {
            return Err(BenchError::Proc { what: "stat" });
        };
        Ok(Duration::from_millis((user + system) * TICK_MS))
    }

    /// Gives the bytes of memory it holds.
    pub(super) fn resident_bytes(&self) -> Result<u64, BenchError> {
        kilobytes(&self.proc("status")?, "VmRSS:").ok_or(BenchError::Proc { what: "status" })
    }

    fn proc(&self, file: &str) -> Result<String, BenchError> {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))
            .map_err(|source| BenchError::Process { name: self.name, source })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory of the whole kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelMemory {
    /// Bytes of its objects: sockets, inodes, timers.
    pub(super) slab_bytes: u64,
    /// Bytes of data in TCP sockets.
    pub(super) tcp_bytes: u64,
}

impl KernelMemory {
    /// Reads how much there is now.
    pub(super) fn now() -> Result<Self, BenchError> {
        let read = |path: &'static str| fs::read_to_string(path).map_err(|_| BenchError::Proc { what: path });
        let slab_bytes =
            kilobytes(&read("/proc/meminfo")?, "Slab:").ok_or(BenchError::Proc { what: "/proc/meminfo" })?;
        let sockets = read("/proc/net/sockstat")?;
        let tcp = sockets.lines().find(|line| line.starts_with("TCP:"));
        let pages = tcp.and_then(|line| line.split_whitespace().skip_while(|word| *word != "mem").nth(1));
        let pages: u64 =
            pages.and_then(|pages| pages.parse().ok()).ok_or(BenchError::Proc { what: "/proc/net/sockstat" })?;
        Ok(Self { slab_bytes, tcp_bytes: pages * PAGE_BYTES })
    }
}

/// Describes the machine in a line.
pub(super) fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let gigabytes = kilobytes(&memory, "MemTotal:").unwrap_or_default() >> 30;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {cores} cores, {gigabytes} GiB, Linux {}", kernel.trim())
}

/// Finds a line of `/proc` that counts in kilobytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Length of the clock tick in which /proc counts processor time: `USER_HZ`, which is 100 on every Linux (time(7)).
const TICK_MS: u64 = 10;

/// Bytes of a page of memory on the machines this runs on.
const PAGE_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_processor_time_and_memory_of_a_child_are_seen() {
        let mut busy =
            Process::start("sh", Command::new("sh").args(["-c", "echo up; while :; do :; done"])).expect("sh");
        assert_eq!(busy.line().expect("a line"), "up\n");
        let until = Instant::now() + Duration::from_secs(60);
        while busy.cpu().expect("stat") < Duration::from_millis(20) {
            assert!(Instant::now() < until, "it uses no processor time");
            std::thread::yield_now();
        }
        assert!(busy.resident_bytes().expect("status") > 100_000);
        assert!(busy.is_running());
    }

    #[test]
    fn the_kernel_and_the_machine_are_described() {
        assert!(KernelMemory::now().expect("numbers").slab_bytes > 0);
        assert!(machine().contains("Linux "));
    }
}
