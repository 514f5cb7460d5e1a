//! What a session may have of a server, and what it sees of it.

use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

use outboard_e2e::{Driver, Folder, Lines, PATIENCE, Program, Server, command, programs, within};
use outboard_test_support::skip;

use crate::proxy::Proxy;

/// A server of the device under test, with further arguments.
fn serve(args: &[&str]) -> Server {
    let all: Vec<&str> =
        ["--driver", Driver::chosen().name()].into_iter().chain(args.iter().copied()).collect();
    Server::start_with(&all, &[])
}

#[test]
fn a_session_sees_a_device_of_the_size_that_it_may_have() {
    let server = serve(&["--session-memory", "256M"]);
    let limited = Program::new("memory_limit").arg(&(256_u64 << 20).to_string()).through(&server);
    limited.expect_success("memory_limit");
    assert!(
        limited.stdout.contains("variables of modules end at the limit\nmemory_limit: done"),
        "{}",
        limited.stdout
    );
    // Programs that stay below it notice nothing.
    for program in ["memory_pools", "driver_memory"] {
        Program::new(program).through(&server).expect_success(program);
    }
}

/// `outboard run` for a program, with everything that it says.
fn run(address: &str, args: &[&str], program: &[&str]) -> Child {
    let path = programs().join(program[0]);
    command()
        .args(["run", "--server", address])
        .args(args)
        .arg("--")
        .arg(path)
        .args(&program[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("outboard run starts")
}

fn finish(child: Child) -> (bool, String) {
    let output = child.wait_with_output().expect("it can be waited for");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // Long sentences are broken into lines.
    let words: Vec<&str> = said.split_whitespace().filter(|word| *word != "│").collect();
    (output.status.success(), words.join(" "))
}

#[test]
fn an_exclusive_device_goes_from_owner_to_owner() {
    let folder = Folder::create();
    let [socket, admin] = ["x.sock", "x.admin.sock"].map(|name| folder.path(name));
    let server =
        serve(&["--sharing", "exclusive", "--queue", "4", "--socket", &socket, "--admin", &admin]);
    let local = format!("unix:{socket}");
    let mut holder = Program::new("memory_limit").arg("hold").arg("1048576").start_through(&server);
    holder.wait_for_line("held");
    // Another program of the same machine is the same owner.
    Program::new("devices").through(&server).expect_success("a second program of the owner");
    let (well, said) = finish(run(&local, &["--no-wait"], &["devices"]));
    assert!(!well && said.contains("one owner at a time") && said.contains("place 1"), "{said}");
    // Since when somebody has it is for all who wait, who it is for the server's own user.
    assert!(
        said.contains("another one has had it since 20") && !said.contains("anonymous"),
        "{said}"
    );
    for (what, wanted) in [
        ("sessions", "Device 0 is exclusive: anonymous at 127.0.0.1 has had it for"),
        ("devices", "exclusive: anonymous at 127.0.0.1 for"),
    ] {
        let told = outboard_e2e::outboard(&[what, "--server", &local]);
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains(wanted), "{what}: {told}");
    }
    // The library waits by itself, too, and no longer than it may.
    let late = Program::new("devices")
        .env("OUTBOARD_QUEUE_TIMEOUT", "0")
        .env("OUTBOARD_LOG", "1")
        .through_list(&local);
    assert!(late.stderr.contains("no room yet"), "{}", late.stderr);

    let mut first = run(&local, &[], &["memory_limit"]);
    let told = Lines::of(first.stderr.take());
    assert!(told.find("queue").contains("place 1"), "it is next");
    let mut gone = run(&local, &[], &["memory_limit"]);
    let gone_told = Lines::of(gone.stderr.take());
    assert!(gone_told.find("queue").contains("place 2"), "it is behind");
    let mut last = run(&local, &[], &["memory_limit"]);
    let last_told = Lines::of(last.stderr.take());
    assert!(last_told.find("queue").contains("place 3"), "it is last");
    // Who goes away makes room for those behind.
    gone.kill().expect("it is there");
    gone.wait().expect("it can be waited for");
    assert!(last_told.find("queue").contains("place 2"), "it has moved up");
    holder.kill();
    for child in [first, last] {
        let (well, said) = finish(child);
        assert!(well && said.contains("memory_limit: done"), "{said}");
    }
}

/// Who asks for a device that there is not keeps nobody from those that there are; and a place that
/// is kept is shown.
#[test]
fn a_device_that_there_is_not_holds_no_place() {
    let folder = Folder::create();
    let [socket, admin] = ["x.sock", "x.admin.sock"].map(|name| folder.path(name));
    let args = [
        "--driver",
        "cpu",
        "--warm",
        "1",
        "--sharing",
        "exclusive",
        "--socket",
        &socket,
        "--admin",
        &admin,
    ];
    let server = Server::start_with(&args, &[("OUTBOARD_LOG", "debug")]);
    server.expect_logged("\"message\":\"warm\"");
    let nowhere = format!("{}/7", server.address());
    let (well, said) = finish(run(&nowhere, &[], &["devices"]));
    assert!(!well && said.contains("no device 7"), "{said}");
    // Another owner, by the socket: the device is free as soon as the server has seen the first one
    // go, where a kept place lasts 30 seconds.
    let local = format!("unix:{socket}");
    let free =
        within(Duration::from_secs(10), || finish(run(&local, &["--no-wait"], &["devices"])).0);
    assert!(free, "{}", server.log());

    // A place that is kept for who does not come back.
    let mut away = command();
    away.args(["run", "--server", server.address(), "--", "/bin/true"]);
    // The device is free as soon as the server has seen the one before go.
    assert!(
        within(Duration::from_secs(10), || away.status().expect("outboard run starts").success()),
        "{}",
        server.log()
    );
    let sessions = command()
        .args(["sessions", "--over", "0.01", "--admin", &admin])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&[sessions.stdout, sessions.stderr].concat()).into_owned();
    assert!(said.contains("is kept for"), "{said}");
}

#[test]
fn what_does_not_fit_is_refused_at_once_without_a_queue() {
    let server = serve(&["--owner-sessions", "1", "--session-memory", "64M", "--memory", "100M"]);
    let mut holder = Program::new("memory_limit").arg("hold").arg("1048576").start_through(&server);
    holder.wait_for_line("held");
    let (well, said) = finish(run(server.address(), &[], &["devices"]));
    assert!(
        !well && said.contains("anonymous has as many sessions as it may have (1): memory_limit"),
        "{said}"
    );
    assert!(said.contains("OB0501"), "{said}");
    // Questions are no sessions.
    assert!(outboard_e2e::outboard(&["devices", "--server", server.address()]).status.success());
    holder.kill();
    assert!(
        within(Duration::from_secs(20), || finish(run(server.address(), &[], &["devices"])).0),
        "there is room again"
    );
}

#[test]
fn sessions_are_let_in_as_far_as_their_memory_is_there() {
    let args = [
        "--session-memory",
        "64M",
        "--memory",
        "100M",
        "--queue",
        "2",
        "--queue-time",
        "2",
        "--closed-grace",
        "0",
    ];
    let server = serve(&args);
    let mut holder = Program::new("memory_limit").arg("hold").arg("1048576").start_through(&server);
    holder.wait_for_line("held");
    let (well, said) = finish(run(server.address(), &[], &["devices"]));
    assert!(
        !well && said.contains("device 0 has no room") && said.contains("seconds in the queue"),
        "{said}"
    );
    let waits = run(server.address(), &[], &["devices"]);
    holder.kill();
    let (well, said) = finish(waits);
    assert!(well, "{said}");
}

/// How long a copy there and one back took.
fn copy(server: &Server, bytes: u64) -> (Duration, Duration) {
    let outcome = Program::new("memory_limit").arg("copy").arg(&bytes.to_string()).through(server);
    outcome.expect_success("memory_limit copy");
    let mut times =
        outcome.stdout.split_whitespace().map(|text| text.parse().expect("milliseconds"));
    let mut next = || Duration::from_millis(times.next().expect("two times"));
    (next(), next())
}

#[test]
fn a_session_has_its_bandwidth_each_way_and_no_more() {
    const RATE: u64 = 8 << 20;
    let server = serve(&["--session-bandwidth", "8M"]);
    let (there, back) = copy(&server, 3 * RATE);
    // What comes first need not wait, and a tenth of a second is given on top; how late the last
    // bytes are depends on the machine.
    for time in [there, back] {
        assert!(
            (Duration::from_millis(2000)..Duration::from_secs(30)).contains(&time),
            "{there:?} there, {back:?} back"
        );
    }
    // Small copies travel with commands, and are counted, too.
    let began = std::time::Instant::now();
    Program::new("burst").through(&server).expect_success("burst");
    assert!(began.elapsed() < Duration::from_secs(60), "commands go on");
}

#[test]
fn a_session_uses_its_share_of_the_multiprocessors() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let args = ["--driver", "cpu", "--session-multiprocessors", "60"];
    let server = Server::start_with(&args, &[("OUTBOARD_CPU_THREADS", "4")]);
    Program::new("portion").arg("2").through(&server).expect_success("portion");
    for program in ["green_contexts", "contexts", "per_thread_stream", "graph_capture"] {
        Program::new(program).through(&server).expect_success(program);
    }
    // The part is never nothing.
    let server = Server::start_with(&["--driver", "cpu", "--session-multiprocessors", "1"], &[]);
    Program::new("portion").arg("1").through(&server).expect_success("portion");
}

/// A program that keeps memory and says when asked whether it is still there.
struct Keeper {
    child: Child,
    said: Lines,
}

impl Keeper {
    fn start(server: &Server, bytes: u64) -> Keeper {
        Keeper::start_at(server.address(), bytes)
    }

    fn start_at(address: &str, bytes: u64) -> Keeper {
        let mut command = command();
        command.args(["run", "--server", address, "--"]).arg(programs().join("memory_limit"));
        command.args(["keep", &bytes.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("outboard run starts");
        let said = Lines::of(child.stdout.take());
        said.find("ready");
        Keeper { child, said }
    }

    fn ask(&mut self) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input, "?").and_then(|()| input.flush()).expect("it reads");
        self.said.find("right after");
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn idle_sessions_lend_their_memory_and_have_it_back_with_what_was_in_it() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    const BYTES: u64 = 160 << 20;
    let server = serve(&[
        "--memory",
        "300M",
        "--oversubscribe",
        "--idle",
        "1",
        "--suspended-memory",
        "512M",
    ]);
    let suspended = || server.log().matches("an idle session is suspended").count();
    let mut first = Keeper::start(&server, BYTES);
    first.ask();
    assert_eq!(suspended(), 0);
    // There is no room for both at once.
    let mut second = Keeper::start(&server, BYTES);
    assert!(within(PATIENCE, || suspended() == 1), "{}", server.log());
    for _ in 0..2 {
        first.ask();
        second.ask();
    }
    assert!(within(PATIENCE, || suspended() == 5), "they took turns: {}", server.log());
    // Who has ended needs no turn.
    drop(second);
    first.ask();
    first.ask();
    assert_eq!(suspended(), 5);
    // One that will never have room is told so, and nobody is suspended for it.
    let large =
        Program::new("memory_limit").arg("hold").arg(&(400_u64 << 20).to_string()).through(&server);
    assert!(large.stdout.contains("OUT_OF_MEMORY"), "{}", large.stdout);
    assert_eq!(suspended(), 5);
}

#[test]
fn a_session_whose_client_is_away_lends_its_memory_and_has_it_back() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    const BYTES: u64 = 160 << 20;
    let args = [
        "--memory",
        "300M",
        "--oversubscribe",
        "--idle",
        "1",
        "--suspended-memory",
        "512M",
        "--closed-grace",
        "300",
    ];
    let server = serve(&args);
    let suspended = || server.log().matches("an idle session is suspended").count();
    let proxy = Proxy::start(server.address());
    let mut first = Keeper::start_at(proxy.address(), BYTES);
    first.ask();
    proxy.close(true);
    assert!(within(PATIENCE, || proxy.cut(None) == 0), "connections end");
    // There is room for another although nobody can ask the first client.
    let mut second = Keeper::start(&server, BYTES);
    assert!(within(PATIENCE, || suspended() == 1), "{}", server.log());
    proxy.close(false);
    // Coming back alone takes nothing from the second; asking does.
    first.ask();
    assert!(within(PATIENCE, || suspended() == 2), "{}", server.log());
    second.ask();
    first.ask();
}

#[test]
fn suspended_sessions_go_on_with_the_next_server() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    const BYTES: u64 = 160 << 20;
    let mut server = serve(&[
        "--memory",
        "300M",
        "--oversubscribe",
        "--idle",
        "1",
        "--suspended-memory",
        "512M",
    ]);
    let mut first = Keeper::start(&server, BYTES);
    let mut second = Keeper::start(&server, BYTES);
    server.expect_logged("an idle session is suspended");
    // Killed while the first one is suspended; the next one knows who holds what, and they take
    // turns.
    server.kill();
    server.start_again();
    first.ask();
    server.expect_logged("a suspended session goes on");
    second.ask();
    // A call that finds its session suspended and no server waits for the next one.
    server.kill();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| first.ask());
        // The other session, which is not suspended, is answered meanwhile.
        (0..3).for_each(|_| second.ask());
        assert!(!asking.is_finished(), "there is nobody to resume it");
        server.start_again();
        asking.join().expect("it has its memory back");
    });
    server.ask_to_upgrade();
    server.expect_upgrades(1);
    second.ask();
    first.ask();
}

#[test]
fn a_session_is_not_suspended_if_the_host_has_no_room_for_it() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let server = serve(&[
        "--memory",
        "300M",
        "--oversubscribe",
        "--idle",
        "1",
        "--suspended-memory",
        "100M",
    ]);
    let mut first = Keeper::start(&server, 160 << 20);
    let large =
        Program::new("memory_limit").arg("hold").arg(&(160_u64 << 20).to_string()).through(&server);
    assert!(large.stdout.contains("OUT_OF_MEMORY"), "{}", large.stdout);
    server.expect_logged("the host has no room");
    first.ask();
}

#[test]
fn memory_of_a_session_that_has_ended_is_not_seen_by_the_next() {
    const BYTES: u64 = 64 << 20;
    // With and without a worker that was there before.
    for warm in ["0", "1"] {
        let server = serve(&["--warm", warm]);
        for _ in 0..3 {
            let outcome =
                Program::new("memory_limit").arg("look").arg(&BYTES.to_string()).through(&server);
            outcome.expect_success("memory_limit look");
            assert!(outcome.stdout.starts_with("0 words of"), "{}", outcome.stdout);
        }
    }
}
