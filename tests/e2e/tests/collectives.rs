//! Collectives of NCCL, which servers make: here, with the stand-in on the software device.

use std::process::Command;
use std::time::{Duration, Instant};

use outboard_e2e::{
    Folder, Outcome, Program, Running, Server, dist, list, programs, reaching_loopback,
};
use serde_json::Value;

/// A server with so many devices that makes collectives.
fn server_with(devices: usize, flags: &[&str], env: &[(&str, &str)]) -> Server {
    let library = programs().join("fake_nccl");
    let library = library.to_str().expect("a plain path");
    let own = ["--driver", "cpu", "--nccl", library];
    let devices = devices.to_string();
    let memory = [("OUTBOARD_CPU_DEVICES", devices.as_str()), ("OUTBOARD_CPU_MEMORY", "256M")];
    let flags = reaching_loopback(&[&own[..], flags].concat());
    Server::start_with(&flags, &[&memory[..], env].concat())
}

fn server(devices: usize) -> Server {
    server_with(devices, &[], &[])
}

fn program(how: &str) -> Program {
    Program::new("collectives").arg(how)
}

/// Ranks that are programs of their own, each with servers of its own; how they end.
fn ranks(how: &str, servers: &[&Server]) -> Vec<Outcome> {
    let folder = Folder::create();
    let running: Vec<Running> = start(how, servers, &folder.path("id"));
    running.into_iter().map(Running::finish).collect()
}

fn start(how: &str, servers: &[&Server], file: &str) -> Vec<Running> {
    let count = servers.len().to_string();
    let rank = |(rank, server): (usize, &&Server)| {
        // When its server is lost, the program waits for so long before it ends.
        let program = program(how).arg(file).env("OUTBOARD_RECONNECT", "8");
        program.arg(&rank.to_string()).arg(&count).start_through(server)
    };
    servers.iter().enumerate().map(rank).collect()
}

fn expect_all(outcomes: &[Outcome]) {
    for (rank, outcome) in outcomes.iter().enumerate() {
        outcome.expect_success(&format!("rank {rank}"));
    }
}

#[test]
fn one_program_uses_all_devices_of_a_server() {
    let server = server(3);
    for how in ["all", "threads", "not_blocking"] {
        program(how).through(&server).expect_success(how);
        program(how).sharing_memory().through(&server).expect_success(how);
    }
}

#[test]
fn one_program_uses_devices_of_several_servers() {
    let servers = [server(2), server(1)];
    let list = list(&servers.each_ref());
    for how in ["all", "threads", "not_blocking"] {
        program(how).through_list(&list).expect_success(how);
    }
}

#[test]
fn programs_are_ranks_of_one_server_or_of_several() {
    let (first, second) = (server(1), server(1));
    expect_all(&ranks("rank", &[&first, &first]));
    expect_all(&ranks("rank", &[&first, &second]));
}

/// Workers of one server meet, though `--peers` does not name its address.
#[test]
fn ranks_of_a_server_that_listens_on_loopback_meet_by_default() {
    let server = server_with(1, &["--peers", "private"], &[]);
    expect_all(&ranks("rank", &[&server, &server]));
}

/// With a thread and a graph for each rank, and with one graph for all. The software device runs
/// the nodes of a graph one after the other, so ranks of one graph are on two servers here.
#[test]
fn collectives_are_captured_into_graphs() {
    let captured = |how: &str| Program::new("collectives_captured").arg(how);
    let (one, two, three) = (server(2), server(1), server(1));
    captured("threads").through(&one).expect_success("one server");
    captured("threads").sharing_memory().through(&one).expect_success("shared memory");
    for how in ["threads", "group"] {
        captured(how).through_list(&list(&[&two, &three])).expect_success(how);
    }
}

fn waited(statistics: &Value) -> u64 {
    let servers = statistics["servers"].as_array();
    let servers = servers.map_or_else(|| vec![statistics], |servers| servers.iter().collect());
    servers.iter().filter_map(|server| server["waited"].as_u64()).sum()
}

/// What a communicator has done before costs no round trip, with one server and with two.
#[test]
fn repeated_collectives_are_posted() {
    let (one, other) = (server(2), server(1));
    for list in [one.address().to_owned(), list(&[&one, &other])] {
        let rounds = |count: &str| waited(&program("steady").arg(count).statistics_of_list(&list));
        let (few, many) = (rounds("10"), rounds("210"));
        assert!(few > 5, "the statistics count what is waited for: {few}");
        assert!(many < few + 20, "200 more rounds cost {few} against {many} round trips");
    }
}

#[test]
fn mistakes_are_named() {
    let server = server(1);
    let said = program("errors").through(&server);
    said.expect_success("errors");
    for sentence in [
        "ncclCommInitRank: rank 2 is none of 2",
        "ncclCommInitAll: device 0 is in the list twice",
        "ncclGroupEnd: ncclGroupEnd without ncclGroupStart",
        "ncclAllReduce: 99 is no ncclDataType_t",
        "ncclAllReduce: the communicator has no such operation",
        "ncclAllReduce: there are no 40000 bytes of device memory at 0x",
        "ncclAllReduce: the count is too large",
        "ncclAllReduce: the communicator is null",
        "ncclAllReduce: the handle is no communicator",
        "ncclCommRevoke: Outboard does not have this function",
        "ncclAlltoAll: NCCL 2.28.9 of the GPU's server has no ncclAlltoAll: a later one has",
        "ncclCommDestroy: the communicator has been destroyed",
    ] {
        assert!(said.stdout.contains(sentence), "{sentence}\n{}", said.stdout);
    }
    // Whoever asks NCCL to talk hears it at once.
    let said = program("errors").env("NCCL_DEBUG", "WARN").through(&server);
    assert!(said.stderr.contains("NCCL WARN ncclAllReduce: 99 is no"), "{}", said.stderr);
}

#[test]
fn a_rank_that_never_comes_is_not_waited_for_without_end() {
    let server = server(2);
    let begun = Instant::now();
    let said = program("absent").env("OUTBOARD_NCCL_INIT_TIMEOUT", "2").through(&server);
    said.expect_success("absent");
    assert!(said.stdout.contains("have come within 2 seconds"), "{}", said.stdout);
    assert!(begun.elapsed() < Duration::from_secs(60));
    // The worker has ended, and its server goes on.
    program("all").through(&server).expect_success("all");
    let said = program("abandoned").through(&server);
    said.expect_success("abandoned");
    assert!(said.stdout.contains("it was ended"), "{}", said.stdout);
}

/// Each has been told that it is the first of two ranks.
#[test]
fn programs_that_are_the_same_rank_are_told() {
    let server = server(1);
    let folder = Folder::create();
    let same = |number: &str| {
        let program = program("same").arg(&folder.path("id")).arg(number);
        program.env("OUTBOARD_NCCL_INIT_TIMEOUT", "3").start_through(&server)
    };
    for running in [same("0"), same("1")] {
        let said = running.finish();
        said.expect_success("a rank");
        assert!(said.stdout.contains("ncclCommInitRank: "), "{}", said.stdout);
    }
}

/// Threads that are ranks of their own run ahead of each other, by more than a driver takes.
#[test]
fn many_rounds_of_threads_go_through() {
    let server = server(2);
    program("ahead").arg("2000").through(&server).expect_success("ahead");
}

/// Other ranks wait for it.
#[test]
fn a_session_with_communicators_is_not_suspended() {
    let limits = ["--memory", "300M", "--oversubscribe", "--idle", "1"];
    let server = server_with(1, &[&limits[..], &["--suspended-memory", "512M"]].concat(), &[]);
    let mut idle = program("idle").arg("6").start_through(&server);
    idle.wait_for_line("idle");
    // There is no room for both.
    let bytes = (160 << 20).to_string();
    let mut other = Program::new("memory_limit").arg("hold").arg(&bytes).start_through(&server);
    server.expect_logged("it has communicators of NCCL");
    assert!(!server.log().contains("an idle session is suspended"), "{}", server.log());
    idle.finish().expect_success("idle");
    other.kill();
}

#[test]
fn a_server_without_nccl_says_what_to_do() {
    let server = Server::start_with(&["--driver", "cpu"], &[]);
    let said = program("refused").through(&server);
    said.expect_success("refused");
    for part in ["outboard serve --nccl", "pip install nvidia-nccl-cu13", "apt install libnccl2"] {
        assert!(said.stdout.contains(part), "{}", said.stdout);
    }
    let wrong = programs().join("fake_nvml");
    let wrong = wrong.to_str().expect("a plain path");
    let server = Server::start_with(&["--driver", "cpu", "--nccl", wrong], &[]);
    let said = program("refused").through(&server);
    said.expect_success("refused");
    assert!(said.stdout.contains("is not NCCL"), "{}", said.stdout);
}

#[test]
fn servers_of_different_releases_are_told_apart() {
    let first = server(1);
    let second = server_with(1, &[], &[("OUTBOARD_TEST_NCCL_VERSION", "23203")]);
    let folder = Folder::create();
    let file = folder.path("id");
    let rank = |how, rank, server: &Server, limit| {
        let program = program(how).arg(&file).arg(rank).arg("2");
        program.env("OUTBOARD_NCCL_INIT_TIMEOUT", limit).start_through(server)
    };
    let waits = rank("rank", "0", &first, "3");
    let said = rank("versions", "1", &second, "60").finish();
    said.expect_success("versions");
    let wanted = "this server has NCCL 2.32.3, and the server that made the unique id has 2.28.9";
    assert!(said.stdout.contains(wanted), "{}", said.stdout);
    assert!(!waits.finish().status.success(), "the other rank waits for nobody");
    // Nor does a program wait whose ranks are on both.
    let begun = Instant::now();
    let said = program("all").through_list(&list(&[&first, &second]));
    assert!(!said.status.success() && said.stdout.contains("NCCL 2.32.3"), "{}", said.stdout);
    assert!(begun.elapsed() < Duration::from_secs(20), "it has waited");
}

#[test]
fn a_rank_is_told_when_another_one_is_lost() {
    let (first, mut second) = (server(1), server(1));
    let folder = Folder::create();
    let mut running = start("lost", &[&first, &second], &folder.path("id"));
    for rank in &mut running {
        rank.wait_for_line("ready");
    }
    let workers = second.workers();
    second.kill();
    for worker in workers {
        end(worker);
    }
    for (rank, running) in running.into_iter().enumerate() {
        let said = running.finish();
        said.expect_success(&format!("rank {rank}"));
        let line = said.stdout.lines().find(|line| line.starts_with("it was lost after "));
        let line = line.unwrap_or_else(|| panic!("{}", said.stdout));
        let time: u64 = line.split(' ').nth(4).and_then(|time| time.parse().ok()).expect("a time");
        assert!(time < 5000, "rank {rank}: {line}");
    }
}

fn end(process: u32) {
    let killed = Command::new("kill").args(["-KILL", &process.to_string()]).status();
    assert!(killed.expect("kill starts").success());
}

#[test]
fn a_program_that_ends_takes_its_communicators_along() {
    let (first, second) = (server(1), server(1));
    let folder = Folder::create();
    let file = folder.path("id");
    let leaves = program("leave").arg(&file).arg("0").arg("2");
    let stays = program("lost").arg(&file).arg("1").arg("2");
    let leaves = leaves.start_through(&first);
    let said = stays.start_through(&second).finish();
    leaves.finish().expect_success("the rank that leaves");
    said.expect_success("the rank that stays");
    assert!(said.stdout.contains("it was lost after "), "{}", said.stdout);
}

/// PyTorch's and others' packages name the folder of their own NCCL in their libraries, which the
/// loader searches before any that the environment names.
#[test]
fn a_program_that_brings_its_own_nccl_gets_ours() {
    let folder = Folder::create();
    let own = folder.path("own");
    std::fs::create_dir(&own).expect("a folder can be made");
    let compile = |arguments: &[&str]| {
        let mut compiler = Command::new("cc");
        let status = compiler.args(arguments).current_dir(folder.path("")).status();
        assert!(status.expect("cc starts").success());
    };
    let write = |name: &str, text: &str| std::fs::write(folder.path(name), text).expect("written");
    write("own.c", "int ncclGetVersion(int *version) { *version = 1; return 0; }\n");
    write(
        "program.c",
        "#include <stdio.h>\nint ncclGetVersion(int *);\n\
         int main(void) { int version = 0; int failed = ncclGetVersion(&version); \
         printf(\"%d %d\\n\", failed, version); return 0; }\n",
    );
    compile(&["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "own.c", "-o", "own/libnccl.so.2"]);
    let rpath = format!("-Wl,--disable-new-dtags,-rpath,{}", own);
    compile(&["program.c", "own/libnccl.so.2", &rpath, "-o", "program"]);
    let server = server(1);
    let run = |server: &Server, wanted: &str| {
        let mut command = outboard_e2e::command();
        command.args(["run", "--server", server.address(), "--"]).arg(folder.path("program"));
        let output = command.env("OUTBOARD_NCCL", wanted).output().expect("outboard starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(run(&server, "on"), "0 22809\n");
    assert_eq!(run(&server, "off"), "0 1\n");
    // With a server that makes no collectives it is as if ours were not there: the program's own
    // is where the packages have it whose libraries are loaded.
    let wheel = folder.path("nvidia/nccl/lib");
    std::fs::create_dir_all(&wheel).expect("folders can be made");
    std::fs::copy(format!("{own}/libnccl.so.2"), format!("{wheel}/libnccl.so.2")).expect("copied");
    write(
        "user.c",
        "int ncclGetVersion(int *);\nint ask(int *to) { return ncclGetVersion(to); }\n",
    );
    std::fs::create_dir(folder.path("torch")).expect("a folder can be made");
    let shared = ["-shared", "-fPIC", "-Wl,-soname,libuser.so", "user.c", "-o", "torch/libuser.so"];
    compile(&shared);
    let user = format!("-Wl,--disable-new-dtags,-rpath,{}", folder.path("torch"));
    let libraries = ["-Wl,--no-as-needed", "torch/libuser.so", "own/libnccl.so.2"];
    compile(&[&libraries[..], &["program.c", &rpath, &user, "-o", "program"]].concat());
    let without = Server::start_with(&["--driver", "cpu"], &[]);
    assert_eq!(run(&without, "on"), "0 1\n");
    assert_eq!(run(&server, "on"), "0 22809\n");
}

/// What stands in the library for others: NCCL's functions and nothing else of ours.
#[test]
fn the_library_exports_nccl_and_loads_nothing() {
    let library = dist().join("lib/outboard/client/libnccl.so.2");
    let tell = |program: &str, flags: &[&str]| {
        let output = Command::new(program).args(flags).arg(&library).output();
        String::from_utf8(output.expect("binutils are there").stdout).expect("text")
    };
    let symbols = tell("nm", &["-D", "--defined-only"]);
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert!(names.contains(&"ncclAllReduce") && names.contains(&"pncclAllReduce"), "{names:?}");
    for name in names {
        let is_known = name.starts_with("nccl") || name.starts_with("pnccl");
        assert!(is_known || name == "outboard_nccl", "{name} is exported");
    }
    let needed = tell("readelf", &["-d"]);
    let libraries = needed.lines().filter(|line| line.contains("(NEEDED)"));
    for library in libraries {
        let known = ["libc.so", "libgcc_s.so", "ld-linux", "libdl.so", "libpthread.so"];
        assert!(known.iter().any(|known| library.contains(known)), "{library}");
    }
    assert!(needed.contains("[libnccl.so.2]"), "{needed}");
}
