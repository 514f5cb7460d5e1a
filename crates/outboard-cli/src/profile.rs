//! Profiles for people: where the time of programs went.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use miette::{IntoDiagnostic, Result, WrapErr};
use outboard_client::link::NOT_USED;
use serde::Deserialize;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files that OUTBOARD_PROFILE named.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn profile(args: &Args) -> Result<()> {
    let all: Vec<Process> = args.files.iter().map(|file| read(file)).collect::<Result<_>>()?;
    crate::output::print(&report(&all))
}

/// The profile of one process.
#[derive(Debug, Deserialize)]
pub(crate) struct Process {
    pub(crate) process: u32,
    program: String,
    /// Of a process with one server.
    #[serde(flatten)]
    connection: Connection,
    /// Of a process with several.
    #[serde(default)]
    servers: Vec<Connection>,
    /// Bytes that have gone from one of them to another through the process.
    #[serde(default)]
    bytes_relayed: u64,
    /// Bytes that have gone from one of them to another and not through the process.
    #[serde(default)]
    bytes_linked: u64,
    /// Those of them that have gone through memory that the two share.
    #[serde(default)]
    bytes_shared: u64,
    /// Why two of them could not be linked.
    #[serde(default)]
    not_linked: Option<String>,
    #[serde(default)]
    files: FileBytes,
    /// Seconds from its first call to its end.
    lived: f64,
    functions: BTreeMap<String, Function>,
}

/// Bytes of files that a process had moved to and from memory of devices.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FileBytes {
    read_by_servers: u64,
    read_here: u64,
    written_by_servers: u64,
    written_here: u64,
    reasons: BTreeMap<String, u64>,
}

impl FileBytes {
    /// For people; nothing if there are none.
    fn said(&self) -> String {
        let by_servers = self.read_by_servers + self.written_by_servers;
        let here = self.read_here + self.written_here;
        if by_servers + here == 0 {
            return String::new();
        }
        let mut all = format!(
            "; files: {} read and written by the server, {} through this process",
            bytes(by_servers),
            bytes(here)
        );
        for (reason, count) in &self.reasons {
            all += &format!(" ({count} of them: {reason})");
        }
        all
    }
}

/// A server, and how a process used it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Connection {
    server: String,
    device: String,
    transport: String,
    unused: Option<String>,
    message_bytes_sent: u64,
    message_bytes_received: u64,
    messages_not_linked: Option<String>,
}

impl Connection {
    /// The device, and where messages of MPI have gone.
    fn device(&self) -> String {
        let mut all = format!("{} at {} ({})", self.device, self.server, self.transport);
        if let Some(unused) = &self.unused {
            all += &format!(" ({NOT_USED} {unused})");
        }
        if self.message_bytes_sent + self.message_bytes_received > 0 {
            all += &format!(
                "; messages: {} to other ranks' servers, {} from them",
                bytes(self.message_bytes_sent),
                bytes(self.message_bytes_received)
            );
        }
        if let Some(why) = &self.messages_not_linked {
            all += &format!(" (messages that went through this process instead: {why})");
        }
        all
    }
}

impl Process {
    /// Which devices it used, for people, and what of files has gone there.
    fn devices(&self) -> String {
        let files = self.files.said();
        let devices = match (self.servers.as_slice(), self.connection.server.as_str()) {
            ([], "") => "the software device in the process".to_owned(),
            ([], _) => self.connection.device(),
            (several, _) => {
                let mut all = several.iter().map(Connection::device).collect::<Vec<_>>().join(", ");
                if self.bytes_linked > 0 {
                    all += &format!("; {} from server to server", bytes(self.bytes_linked));
                    if self.bytes_shared > 0 {
                        let shared = bytes(self.bytes_shared);
                        all += &format!(", {shared} of that through memory that they share");
                    }
                }
                if self.bytes_relayed > 0 {
                    let relayed = bytes(self.bytes_relayed);
                    all += &format!("; {relayed} between them, through this process");
                }
                if let Some(why) = &self.not_linked {
                    all += &format!(" (not linked: {why})");
                }
                all
            }
        };
        devices + &files
    }
}

/// The counters of one function.
#[derive(Debug, Default, Clone, Deserialize)]
struct Function {
    calls: u64,
    local: u64,
    posted: u64,
    waited: u64,
    round_trips: u64,
    bytes_to_device: u64,
    bytes_from_device: u64,
    seconds_waiting: f64,
    longest_wait: f64,
    shortest_answer: f64,
}

impl Function {
    fn add(&mut self, other: &Function) {
        self.calls += other.calls;
        self.local += other.local;
        self.posted += other.posted;
        self.waited += other.waited;
        self.round_trips += other.round_trips;
        self.bytes_to_device += other.bytes_to_device;
        self.bytes_from_device += other.bytes_from_device;
        self.seconds_waiting += other.seconds_waiting;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        if self.shortest_answer == 0.0
            || (other.shortest_answer > 0.0 && other.shortest_answer < self.shortest_answer)
        {
            self.shortest_answer = other.shortest_answer;
        }
    }
}

/// Reads the profile of a process.
pub(crate) fn read(path: &Path) -> Result<Process> {
    let text = std::fs::read(path)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text)
        .into_diagnostic()
        .wrap_err_with(|| format!("{} is not what OUTBOARD_PROFILE leaves behind", path.display()))
}

/// Functions that are listed one by one.
const TOLD: usize = 25;

/// Where the time of some processes went.
/// Said where no process has left a profile.
const NOTHING: &str = "No process used the device: none loaded Outboard's libcuda.so.1 and called cuInit.\n\
    `LD_DEBUG=libs outboard run … -- PROGRAM 2>&1 | grep libcuda` shows which library is loaded; the page on troubleshooting says what gets in the way.\n";

pub(crate) fn report(all: &[Process]) -> String {
    let mut text = String::from("\n");
    if all.is_empty() {
        return text + NOTHING;
    }
    let mut functions: BTreeMap<&str, Function> = BTreeMap::new();
    for process in all {
        let waiting: f64 =
            process.functions.values().map(|function| function.seconds_waiting).sum();
        let device = process.devices();
        let lived =
            if process.lived > 0.0 { format!("{}, ", time(process.lived)) } else { String::new() };
        let _ = writeln!(
            text,
            "{} (process {}): {lived}{} of waiting in calls; {device}",
            process.program,
            process.process,
            time(waiting)
        );
        for (name, function) in &process.functions {
            functions.entry(name).or_default().add(function);
        }
    }
    let mut rows: Vec<(&str, &Function)> =
        functions.iter().map(|(name, function)| (*name, function)).collect();
    rows.sort_by(|(_, a), (_, b)| {
        b.seconds_waiting.total_cmp(&a.seconds_waiting).then(b.calls.cmp(&a.calls))
    });
    let titles = [
        "",
        "calls",
        "local",
        "posted",
        "waited",
        "to device",
        "from device",
        "time waiting",
        "longest",
    ]
    .map(str::to_owned);
    let mut lines = vec![titles];
    lines.extend(rows.iter().take(TOLD).map(|(name, function)| line(name, function)));
    if let Some(rest) = rows.get(TOLD..).filter(|rest| !rest.is_empty()) {
        let mut sum = Function::default();
        rest.iter().for_each(|(_, function)| sum.add(function));
        lines.push(line(&format!("{} other functions", rest.len()), &sum));
    }
    let mut total = Function::default();
    rows.iter().for_each(|(_, function)| total.add(function));
    lines.push(line("together", &total));
    table(&mut text, &lines);
    text.push('\n');
    answer(&mut text, all, &rows, &total);
    text
}

fn line(name: &str, function: &Function) -> [String; 9] {
    let seconds = |seconds: f64| if seconds > 0.0 { time(seconds) } else { "–".to_owned() };
    [
        name.to_owned(),
        grouped(function.calls),
        grouped(function.local),
        grouped(function.posted),
        grouped(function.waited),
        bytes(function.bytes_to_device),
        bytes(function.bytes_from_device),
        seconds(function.seconds_waiting),
        seconds(function.longest_wait),
    ]
}

fn table(text: &mut String, lines: &[[String; 9]]) {
    let widths: [usize; 9] = std::array::from_fn(|column| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    for line in lines {
        let mut row = format!("{:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(widths).skip(1) {
            let _ = write!(row, "  {cell:>width$}");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
}

/// The last lines: why it took as long as it did.
fn answer(text: &mut String, all: &[Process], rows: &[(&str, &Function)], total: &Function) {
    let lived: f64 = all.iter().map(|process| process.lived).sum();
    let waiting = total.seconds_waiting;
    let Some((name, first)) = rows.first().filter(|(_, first)| first.seconds_waiting > 0.0) else {
        let _ = writeln!(text, "No call waited for anything: {}.", calls(total.calls));
        return;
    };
    if lived > 0.0 && waiting < lived / 20.0 {
        let _ = write!(
            text,
            "Only {:.1} % of the time was spent waiting in calls; ",
            100.0 * waiting / lived
        );
        let _ =
            writeln!(text, "the rest is the program's own, or the cost of {}.", calls(total.calls));
    }
    let share = 100.0 * first.seconds_waiting / waiting;
    let _ = write!(text, "{share:.0} % of the waiting was {name}: ");
    let times = if first.waited > 0 { first.waited } else { first.calls };
    if times > 0 {
        let _ = write!(text, "{} of {}", calls(times), time(first.seconds_waiting / times as f64));
    } else {
        let _ = write!(text, "{}", time(first.seconds_waiting));
    }
    let moved = first.bytes_to_device + first.bytes_from_device;
    if moved > 1 << 20 {
        let _ = write!(
            text,
            ", {} at {}/s",
            bytes(moved),
            bytes((moved as f64 / first.seconds_waiting) as u64)
        );
    }
    text.push_str(".\n");
    if total.shortest_answer > 0.0 {
        let way = total.shortest_answer * total.round_trips as f64;
        let _ = writeln!(
            text,
            "The shortest of {} answers took {}: the way there and back is at most {} of the {} of waiting ({:.1} %), the rest is the \
             device's work and bytes on their way.",
            grouped(total.round_trips),
            time(total.shortest_answer),
            time(way.min(waiting)),
            time(waiting),
            100.0 * (way / waiting).min(1.0)
        );
    }
}

fn calls(number: u64) -> String {
    format!("{} call{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A number with commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 100.0 => format!("{s:.0} s"),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{} ms", three(s * 1e3)),
        s => format!("{} µs", three(s * 1e6)),
    }
}

fn bytes(count: u64) -> String {
    match count {
        0 => "–".to_owned(),
        n if n < 10_000 => format!("{n} B"),
        n if n < 10_000_000 => format!("{} kB", three(n as f64 / 1e3)),
        n if n < 10_000_000_000 => format!("{} MB", three(n as f64 / 1e6)),
        n => format!("{} GB", three(n as f64 / 1e9)),
    }
}

/// About three digits.
fn three(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(functions: &[(&str, Function)]) -> Process {
        let functions = functions
            .iter()
            .map(|(name, function)| ((*name).to_owned(), function.clone()))
            .collect();
        let connection = Connection {
            server: "gpu1:9470".to_owned(),
            device: "Some GPU".to_owned(),
            transport: "tcp".to_owned(),
            ..Connection::default()
        };
        let program = "train".to_owned();
        Process {
            process: 7,
            program,
            connection,
            servers: Vec::new(),
            bytes_relayed: 0,
            bytes_linked: 0,
            bytes_shared: 0,
            not_linked: None,
            files: FileBytes::default(),
            lived: 2.0,
            functions,
        }
    }

    fn waits(calls: u64, seconds: f64, shortest: f64) -> Function {
        Function {
            calls,
            waited: calls,
            round_trips: calls,
            seconds_waiting: seconds,
            longest_wait: seconds,
            shortest_answer: shortest,
            ..Function::default()
        }
    }

    #[test]
    fn messages_of_mpi_are_named() {
        let mut one = process(&[]);
        assert_eq!(one.devices(), "Some GPU at gpu1:9470 (tcp)");
        one.connection.unused = Some("ivshmem: no part is free".to_owned());
        let said = "Some GPU at gpu1:9470 (tcp) (does not use ivshmem: no part is free)";
        assert_eq!(one.devices(), said);
        one.connection.message_bytes_sent = 5 << 20;
        one.connection.messages_not_linked = Some("gpu2 refuses".to_owned());
        let said = one.devices();
        assert!(
            said.contains("to other ranks' servers") && said.contains("gpu2 refuses"),
            "{said}"
        );
    }

    #[test]
    fn files_are_named_by_who_reads_them() {
        let mut one = process(&[]);
        (one.files.read_by_servers, one.files.written_here) = (5_000_000, 7);
        one.files.reasons.insert("it is elsewhere".to_owned(), 2);
        let said = one.devices();
        let end = "; files: 5000 kB read and written by the server, 7 B through this process \
                   (2 of them: it is elsewhere)";
        assert!(said.ends_with(end), "{said}");
    }

    #[test]
    fn the_answer_is_named() {
        let launches = Function {
            calls: 100_000,
            posted: 100_000,
            bytes_to_device: 12_345_678,
            ..Function::default()
        };
        let text = report(&[process(&[
            ("cuLaunchKernel", launches),
            ("cuMemcpyDtoH_v2", waits(1200, 0.48, 1e-4)),
            ("cuMemAlloc_v2", waits(100, 0.07, 2e-4)),
        ])]);
        assert!(
            text.contains("87 % of the waiting was cuMemcpyDtoH_v2: 1,200 calls of 400 µs."),
            "{text}"
        );
        assert!(text.contains("The shortest of 1,300 answers took 100 µs"), "{text}");
        assert!(text.contains("at most 130 ms of the 550 ms of waiting (23.6 %)"), "{text}");
        let row = text.lines().find(|line| line.starts_with("cuLaunchKernel")).unwrap();
        assert!(row.contains("100,000") && row.contains("12.3 MB"), "{row}");
    }

    #[test]
    fn processes_are_added_up() {
        let one = || process(&[("cuCtxSynchronize", waits(3, 1.5, 1e-3))]);
        let text = report(&[one(), one()]);
        assert_eq!(text.matches("process 7").count(), 2, "{text}");
        assert!(
            text.contains("100 % of the waiting was cuCtxSynchronize: 6 calls of 500 ms."),
            "{text}"
        );
    }

    #[test]
    fn no_waiting_is_told() {
        let function = Function { calls: 5, local: 5, ..Function::default() };
        assert!(
            report(&[process(&[("cuCtxGetDevice", function)])])
                .contains("No call waited for anything: 5 calls.")
        );
        let two = r#"{"process": 1, "program": "p", "lived": 1.0, "functions": {}, "servers": [{"server": "a:1", "device": "X", "transport": "tcp"},
            {"server": "b:1", "device": "Y", "transport": "shm", "posted": 3}]}"#;
        let mut two: Process =
            serde_json::from_str(two).expect("this is what a process with two servers leaves");
        assert_eq!(two.devices(), "X at a:1 (tcp), Y at b:1 (shm)");
        two.bytes_relayed = 5000;
        assert!(two.devices().ends_with("; 5000 B between them, through this process"));
        (two.bytes_linked, two.not_linked) = (70, Some("no way".to_owned()));
        let all = "70 B from server to server; 5000 B between them, through this process (not linked: no way)";
        assert!(two.devices().ends_with(all), "{}", two.devices());
        assert!(report(&[]).contains("No process used the device"));
        let little = report(&[process(&[("cuCtxSynchronize", waits(1, 0.01, 1e-3))])]);
        assert!(little.contains("Only 0.5 % of the time was spent waiting in calls"), "{little}");
    }

    #[test]
    fn quantities_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.0, 42e-9, 12.3456e-6, 0.25, 1.5, 3600.0].map(time),
            ["0.00 µs", "0.04 µs", "12.3 µs", "250 ms", "1.50 s", "3600 s"]
        );
        assert_eq!(
            [0, 5000, 123_456, 20_000_000_000].map(bytes),
            ["–", "5000 B", "123 kB", "20.0 GB"]
        );
    }
}
