//! Servers that do not keep to the rules: whatever they ask and say, they reach nothing of the
//! program's that the work under way does not need, and the program goes on, or is told that its
//! session is over.

use std::fs;
use std::time::Duration;

use outboard_e2e::{Driver, Folder, Hostile, Outcome, Program, Running, Server, within};
use outboard_wire::Writer;
use outboard_wire::handshake::resume::{Point, RESUME};
use outboard_wire::handshake::{Purpose, Welcome};
use outboard_wire::lane::{LaneHeader, LaneKind};
use outboard_wire::messages::{Message, StreamSynchronize};
use outboard_wire::notice::{COPIED, ENDED};
use outboard_wire::request::{GRAPH_CALL, GRAPH_READ, GRAPH_WRITE, HOST_CALL, SEND};

/// What comes to pass in moments on any machine, and to a defect never.
const SOON: Duration = Duration::from_secs(20);
/// First bytes of what the program writes where it has waited for what read there before.
const SECRET: u8 = 0x5e;

/// A program that has waited for its work, and the folder of the file that lets it go on.
struct Given {
    program: Running,
    folder: Folder,
}

impl Given {
    /// Runs `given_back` with a server until it has waited.
    fn run(what: &str, hostile: &Hostile, env: &[(&str, &str)]) -> Given {
        let folder = Folder::create();
        let mut program = Program::new("given_back")
            .arg(what)
            .arg(&folder.path("go"))
            .env("OUTBOARD_RECONNECT", "0");
        for (name, value) in env {
            program = program.env(name, value);
        }
        let mut program = program.start_through_list(hostile.address());
        program.wait_for_line("waited");
        Given { program, folder }
    }

    /// Lets it go on to its end.
    fn finish(self) -> Outcome {
        self.folder.write("go", "");
        self.program.finish()
    }
}

/// A body of numbers and bytes.
fn body(numbers: &[u64], rest: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    numbers.iter().for_each(|number| writer.u64(*number));
    writer.fixed(rest);
    writer.into_vec()
}

/// The first number in the body of what the worker asked first, and the context.
fn first_number(hostile: &Hostile, kind: u32) -> (u64, u32) {
    let asked = hostile.first_asked(kind);
    let number = asked.body.first_chunk().copied().map(u64::from_le_bytes);
    (number.expect("a number"), asked.ctx)
}

#[test]
fn nothing_is_asked_for_a_launch_that_is_over() {
    let server = Server::start();
    let hostile = Hostile::before(server.address());
    let given = Given::run("graph", &hostile, &[]);
    let (source, ctx) = first_number(&hostile, GRAPH_READ);
    let (sink, function) =
        (first_number(&hostile, GRAPH_WRITE).0, first_number(&hostile, GRAPH_CALL).0);
    let read = |number| hostile.ask(GRAPH_READ, ctx, &body(&[number, 0], &4096_u32.to_le_bytes()));
    let write = |number| hostile.ask(GRAPH_WRITE, ctx, &body(&[number, 0], &[9; 4096]));
    let called: Vec<_> =
        (0..3).map(|_| hostile.ask(GRAPH_CALL, ctx, &body(&[function], &[]))).collect();
    let (read, other_way, written) = (read(source), read(sink), write(sink));
    let unread = |answer: &Option<(u32, Vec<u8>)>| {
        answer.as_ref().is_none_or(|(status, bytes)| *status != 0 && bytes.is_empty())
    };
    let refused = called.iter().chain([&read, &other_way, &written]).all(unread);
    // The source has become read-only, which ends a program that writes there.
    let to_the_source = write(source);
    let outcome = given.finish();
    outcome.expect_success("the program");
    assert!(outcome.stdout.contains("kept, 1 calls"), "{}", outcome.stdout);
    assert!(refused && unread(&to_the_source), "something was answered");
}

#[test]
fn a_function_is_not_called_when_the_program_was_told_that_it_had_been() {
    let server = Server::start();
    let hostile = Hostile::before(server.address());
    hostile.keep_requests(HOST_CALL);
    hostile.forge(StreamSynchronize::OP);
    let given = Given::run("function", &hostile, &[]);
    let asked = hostile.first_asked(HOST_CALL);
    for ctx in [asked.ctx, asked.ctx + 1, asked.ctx] {
        hostile.ask(HOST_CALL, ctx, &asked.body);
    }
    let outcome = given.finish();
    assert!(outcome.stdout.contains(" 0 calls"), "{}", outcome.stdout);
}

#[test]
fn a_function_is_called_once_in_its_own_context() {
    let server = Server::start();
    let hostile = Hostile::before(server.address());
    hostile.keep_requests(HOST_CALL);
    let program = std::thread::scope(|scope| {
        let program = scope.spawn(|| Given::run("function", &hostile, &[]));
        let asked = hostile.first_asked(HOST_CALL);
        hostile.ask(HOST_CALL, asked.ctx + 1, &asked.body);
        hostile.ask(HOST_CALL, asked.ctx, &asked.body);
        hostile.ask(HOST_CALL, asked.ctx, &asked.body);
        // The worker has its answer as well.
        hostile.order(asked.number, HOST_CALL, asked.ctx, &asked.body);
        program.join().expect("the program waits")
    });
    let outcome = program.finish();
    assert!(outcome.stdout.contains(" 1 calls"), "{}", outcome.stdout);
}

/// Lets a server say of a copy that it is done, and then go on with it; what the program says.
fn goes_on_after(
    what: &str,
    before: impl FnOnce(&Hostile),
    after: impl FnOnce(&Hostile),
) -> (Outcome, Vec<u8>, bool) {
    let server = Server::start();
    let hostile = Hostile::before(server.address());
    hostile.forge(StreamSynchronize::OP);
    before(&hostile);
    let given = Given::run(what, &hostile, &[]);
    after(&hostile);
    within(Duration::from_secs(2), || hostile.is_left() || hostile.chunks().contains(&SECRET));
    let left = hostile.is_left();
    (given.finish(), hostile.chunks(), left)
}

#[test]
fn a_late_copy_is_not_sent_when_it_was_said_to_be_done() {
    let before = |hostile: &Hostile| hostile.keep_requests(SEND);
    let after = |hostile: &Hostile| {
        if let Some(asked) = hostile.first_asked_unless_left(SEND) {
            (0..2).for_each(|_| hostile.order(asked.number, SEND, asked.ctx, &asked.body));
        }
    };
    let (outcome, chunks, left) = goes_on_after("late", before, after);
    assert!(!chunks.contains(&SECRET), "bytes of later were sent: {}", outcome.stdout);
    assert!(left, "the session is over");
}

#[test]
fn nothing_more_is_sent_of_a_copy_that_was_said_to_be_done() {
    let (outcome, chunks, left) = goes_on_after(
        "upload",
        |hostile| hostile.hold_lanes(true),
        |hostile| hostile.hold_lanes(false),
    );
    assert!(!chunks.contains(&SECRET), "bytes of later were sent: {}", outcome.stdout);
    assert!(left, "the session is over");
}

#[test]
fn nothing_more_is_written_of_a_copy_that_was_said_to_be_done() {
    let before = |hostile: &Hostile| {
        hostile.keep_notices(COPIED);
        hostile.hold_lanes(true);
    };
    let (outcome, _, left) = goes_on_after("download", before, |hostile| hostile.hold_lanes(false));
    assert!(outcome.stdout.contains("kept"), "{}", outcome.stdout);
    assert!(left, "the session is over");
}

#[test]
fn requests_that_nothing_expects_cost_no_thread() {
    let server = Server::start();
    let hostile = Hostile::before(server.address());
    let given = Given::run("idle", &hostile, &[]);
    let threads =
        || fs::read_dir(format!("/proc/{}/task", given.program.id())).map_or(0, Iterator::count);
    let before = threads();
    for ctx in 2..2002 {
        hostile.order(0, HOST_CALL, ctx, &body(&[1], &[0; 4]));
        hostile.order(0, 1000 + ctx, 1, &[]);
    }
    // Lanes may be opening, each with two threads.
    let many = within(Duration::from_secs(1), || threads() > before + 20);
    assert!(!many, "{before} threads have become {}", threads());
    given.finish().expect_success("the program");
}

#[test]
fn copies_that_nobody_waits_for_are_not_remembered() {
    let server = Server::start();
    let hostile = Hostile::before(server.address());
    let given = Given::run("idle", &hostile, &[]);
    let resident = || {
        let status =
            fs::read_to_string(format!("/proc/{}/status", given.program.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line of it");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number")
    };
    let before = resident();
    (1_000..401_000).for_each(|number: u64| hostile.notice(COPIED, &number.to_le_bytes()));
    // A number takes 16 bytes of a set at least.
    let grown = resident().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB more");
    given.finish().expect_success("the program");
}

#[test]
fn frames_on_lanes_that_belong_to_nothing_do_no_harm() {
    let server = Server::start();
    let hostile = Hostile::before(server.address());
    let given = Given::run("graph", &hostile, &[]);
    let chunk = |transfer, index, len| LaneHeader { kind: LaneKind::Chunk, transfer, index, len };
    for (transfer, index) in [(1, 0), (1, u32::MAX), (u64::MAX, 7), (99, 0)] {
        hostile.on_a_lane(&chunk(transfer, index, 65536), &[SECRET; 65536]);
        for kind in [
            LaneKind::Grant,
            LaneKind::Done,
            LaneKind::Cancelled,
            LaneKind::Acknowledge,
            LaneKind::Written,
        ] {
            hostile.on_a_lane(&LaneHeader { kind, transfer, index, len: 0 }, &[]);
        }
    }
    let outcome = given.finish();
    outcome.expect_success("the program");
    assert!(outcome.stdout.contains("kept, 1 calls"), "{}", outcome.stdout);
}

#[test]
fn what_a_server_says_controls_no_terminal() {
    let server = Server::start();
    let hostile = Hostile::before(server.address());
    let given = Given::run("idle", &hostile, &[("OUTBOARD_LOG", "1")]);
    let mut writer = Writer::new();
    writer.str("ended\u{1b}]0;owned\u{7}\u{9b}2J\r\n\u{202e}now");
    hostile.notice(ENDED, writer.as_slice());
    assert!(within(SOON, || hostile.is_left()), "the program takes it in");
    let outcome = given.finish();
    assert!(outcome.stderr.contains("now"), "{}", outcome.stderr);
    let is_odd = |c: char| {
        c != '\n'
            && (c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    };
    assert!(!outcome.stderr.contains(is_odd), "{:?}", outcome.stderr);
}

/// Cuts a session off whose next welcome says that so much was received.
fn goes_on_from(received: u64) -> (Outcome, usize) {
    let server = Server::start();
    let rewrite = move |welcome: &mut Welcome, purpose: &Purpose| {
        if matches!(purpose, Purpose::Resume { .. }) {
            welcome.more.set(RESUME, &Point { lane: 0, attempt: 1, received });
        }
    };
    let hostile = Hostile::with_welcome(server.address(), Box::new(rewrite));
    let given =
        Given::run("graph", &hostile, &[("OUTBOARD_RECONNECT", "20"), ("OUTBOARD_LOG", "1")]);
    hostile.cut();
    let mut given = given;
    within(Duration::from_secs(3), || given.program.has_ended());
    (given.finish(), hostile.connections())
}

#[test]
fn a_session_does_not_go_on_from_where_it_has_not_been() {
    for received in [u64::MAX, 1 << 40] {
        let (outcome, _) = goes_on_from(received);
        outcome.expect_success("the program");
        assert!(outcome.stderr.contains("never sent"), "{}", outcome.stderr);
    }
}

#[test]
fn a_session_that_goes_on_from_before_does_nothing_twice() {
    let (outcome, _) = goes_on_from(0);
    outcome.expect_success("the program");
    assert!(outcome.stdout.contains("kept, 1 calls"), "{}", outcome.stdout);
}

#[test]
fn a_welcome_of_nonsense_is_none() {
    let server = Server::start();
    type Change = fn(&mut Welcome);
    let wrong: [(&str, Change); 3] = [
        ("lanes", |welcome| welcome.lanes = u32::MAX),
        ("no platform", |welcome| welcome.snapshot.clear()),
        ("counts", |welcome| welcome.snapshot.iter_mut().for_each(|byte| *byte = 0xff)),
    ];
    for (what, change) in wrong {
        let hostile =
            Hostile::with_welcome(server.address(), Box::new(move |welcome, _| change(welcome)));
        let outcome =
            Program::new("given_back").arg("idle").arg("/").through_list(hostile.address());
        // With more lanes than there are it is served; else it has no device.
        assert_eq!(outcome.status.code(), Some(i32::from(what != "lanes")), "{what}: {outcome:?}");
        assert!(hostile.connections() < 40, "{what}");
    }
}

/// Sends a process a signal.
fn signal(process: u32, signal: &str) {
    let status = std::process::Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(status.expect("kill starts").success());
}

/// Starts a program that waits for a function which the server keeps to itself.
fn waits_for_ever(server: &Server, env: &[(&str, &str)]) -> (Hostile, Running, Folder) {
    let hostile = Hostile::before(server.address());
    hostile.keep_requests(HOST_CALL);
    let folder = Folder::create();
    let mut program = Program::new("given_back").arg("function").arg(&folder.write("go", ""));
    for (name, value) in
        [("OUTBOARD_KEEPALIVE", "3"), ("OUTBOARD_RECONNECT", "0")].iter().chain(env)
    {
        program = program.env(name, value);
    }
    let program = program.start_through_list(hostile.address());
    hostile.first_asked(HOST_CALL);
    (hostile, program, folder)
}

/// A server whose workers say often that they live.
fn lively() -> Server {
    Server::start_with(&["--driver", Driver::chosen().name(), "--keepalive", "3"], &[])
}

#[test]
fn a_worker_that_has_stopped_is_not_waited_for_and_a_busy_one_is() {
    let server = lively();
    let (hostile, mut busy, _folder) = waits_for_ever(&server, &[]);
    // Longer than a worker may be silent. Its stream waits for the function all the while.
    std::thread::sleep(Duration::from_secs(7));
    assert!(!busy.has_ended() && !hostile.is_left(), "a worker that is busy is waited for");
    let asked = hostile.first_asked(HOST_CALL);
    hostile.order(asked.number, HOST_CALL, asked.ctx, &asked.body);
    let outcome = busy.finish();
    assert!(
        outcome.stdout.contains("the wait succeeded") && outcome.stdout.contains(" 1 calls"),
        "{}",
        outcome.stdout
    );
    drop(hostile);
    for env in [&[][..], &[("OUTBOARD_RECONNECT", "2")]] {
        let (hostile, mut program, _folder) = waits_for_ever(&server, env);
        let worker = server.only_worker();
        signal(worker, "-STOP");
        let ended = within(SOON, || program.has_ended());
        signal(worker, "-CONT");
        assert!(ended, "the program waits for a worker that has stopped: {env:?}");
        let outcome = program.finish();
        assert!(outcome.stdout.contains("the wait failed"), "{env:?}: {}", outcome.stdout);
        drop(hostile);
        assert!(within(SOON, || server.workers().is_empty()), "the worker ends with its client");
    }
}

#[test]
fn a_worker_on_this_machine_that_has_stopped_is_not_waited_for() {
    let server = lively();
    let mut program = Program::new("endless")
        .env("OUTBOARD_KEEPALIVE", "3")
        .sharing_memory()
        .start_through(&server);
    program.wait_for_line("running");
    let worker = server.only_worker();
    signal(worker, "-STOP");
    let ended = within(SOON, || program.has_ended());
    signal(worker, "-CONT");
    program.kill();
    assert!(ended, "the program waits for a worker that has stopped");
}

#[test]
fn a_server_that_falls_silent_is_not_waited_for() {
    let server = lively();
    let (hostile, mut program, _folder) = waits_for_ever(&server, &[("OUTBOARD_RECONNECT", "2")]);
    // It goes on to take connections, and does not answer there either.
    hostile.fall_silent();
    assert!(
        within(SOON, || program.has_ended()),
        "the program waits for a server that says nothing"
    );
    let outcome = program.finish();
    assert!(outcome.stdout.contains("the wait failed"), "{}", outcome.stdout);
    assert!(hostile.connections() > 1, "it tried to go on");
}

#[test]
fn a_frame_that_never_ends_is_not_waited_for() {
    let server = lively();
    let (hostile, mut program, _folder) = waits_for_ever(&server, &[("OUTBOARD_RECONNECT", "0")]);
    // Signs of life still come, as bytes of that frame.
    hostile.begin_a_frame();
    assert!(within(SOON, || program.has_ended()), "the program waits for the rest of a frame");
    assert!(program.finish().stdout.contains("the wait failed"));
}

#[test]
fn a_frame_on_a_lane_that_stops_midway_is_not_waited_for() {
    let server = lively();
    let hostile = Hostile::before(server.address());
    let program =
        Program::new("big_copy").env("OUTBOARD_RECONNECT", "0").env("OUTBOARD_KEEPALIVE", "3");
    let mut program = program.start_through_list(hostile.address());
    hostile.begin_on_a_lane();
    assert!(within(SOON, || program.has_ended()), "the program waits for the rest of a header");
    assert!(!program.finish().status.success());
}
