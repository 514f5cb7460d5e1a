//! Lists of which each process of a job uses one device, `:by-rank`.

use outboard_e2e::{Outcome, PATIENCE, Program, Server, command, within};

/// Two servers with two devices each.
fn servers() -> [Server; 2] {
    let start = || Server::start_with(&["--driver", "cpu"], &[("OUTBOARD_CPU_DEVICES", "2")]);
    [start(), start()]
}

/// The program `devices` as a process that a launcher has started with these variables.
fn devices(list: &str, launcher: &[(&str, &str)]) -> Outcome {
    let program = Program::new("devices");
    launcher
        .iter()
        .fold(program, |program, (name, value)| program.env(name, value))
        .through_list(list)
}

/// The lines that say which devices it has used.
fn used(outcome: &Outcome) -> Vec<&str> {
    outcome.expect_success("devices");
    let lines = outcome.stdout.lines().filter(|line| line.contains("GPU-"));
    lines.map(|line| line.split_once(": ").expect("its number").1).collect()
}

/// How many sessions a server has started; those that only ask are none.
fn sessions(server: &Server) -> usize {
    let log = server.log();
    log.lines().filter(|line| line.contains("session starts") && line.contains("Session")).count()
}

/// Waits until a server has started this many: its log may come later than what it did.
#[track_caller]
fn expect_sessions(server: &Server, count: usize) {
    assert!(within(PATIENCE, || sessions(server) == count), "{count}: {}", server.log());
}

#[test]
fn each_rank_uses_one_device_of_the_list() {
    let [first, second] = servers();
    let list = format!("{}/0-1,{}/0-1", first.address(), second.address());
    let all = devices(&list, &[]);
    let all = used(&all);
    assert_eq!(all.len(), 4, "{all:?}");
    for rank in 0..5 {
        let number = rank.to_string();
        let found = devices(&format!("{list}:by-rank"), &[("OMPI_COMM_WORLD_RANK", &number)]);
        let [one] = used(&found)[..] else { panic!("one device: {found:?}") };
        // Devices of servers that are alike have one identity when they are alone.
        assert_eq!(one, used(&devices(single(&first, &second, rank).as_str(), &[]))[0], "{rank}");
    }
    // Slurm's variables are those of the task that mpirun is.
    let nested = [("SLURM_PROCID", "0"), ("PMI_RANK", "3")];
    // One session each for the whole list, and two for each of its ranks.
    expect_sessions(&first, 7);
    expect_sessions(&second, 5);
    used(&devices(&format!("{list}:by-rank"), &nested));
    expect_sessions(&second, 6);
    assert_eq!(sessions(&first), 7);
}

/// The list of the one device that a rank is to use.
fn single(first: &Server, second: &Server, rank: usize) -> String {
    let server = if rank % 4 < 2 { first } else { second };
    format!("{}/{}", server.address(), rank % 2)
}

#[test]
fn servers_without_devices_share_the_ranks() {
    let [first, second] = servers();
    let list = format!("{},{}:by-local-rank", first.address(), second.address());
    for (rank, server, index) in [(0, &first, 0), (1, &second, 0), (3, &second, 1), (4, &first, 0)]
    {
        let before = sessions(server);
        let found = devices(&list, &[("SLURM_LOCALID", &rank.to_string())]);
        let wanted = devices(&format!("{}/{index}", server.address()), &[]);
        assert_eq!((used(&found), sessions(server)), (used(&wanted), before + 2), "{rank}");
    }
}

#[test]
fn without_a_launcher_a_sentence_says_so() {
    let [first, _] = servers();
    let list = format!("{}:by-rank", first.address());
    let found = devices(&list, &[]);
    assert!(found.stdout.contains("cudaErrorSystemNotReady"), "{found:?}");
    assert!(found.stderr.contains("[OB0107]"), "{}", found.stderr);
    assert_eq!(found.stderr.matches("start it with mpirun").count(), 1, "{}", found.stderr);
    let odd = devices(&list, &[("PMI_RANK", "one")]);
    assert!(odd.stderr.contains("PMI_RANK is `one`"), "{odd:?}");
    // A rank that has to ask its server says why the server does not answer.
    let nobody = devices("127.0.0.1:1:by-rank", &[("PMI_RANK", "3")]);
    assert!(nobody.stderr.contains("nothing listens at 127.0.0.1:1"), "{nobody:?}");
    // Commands that show devices show those of all ranks.
    let shown = command().args(["devices", "--json", "--server", &list]).output().expect("it runs");
    let listed: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(listed["devices"].as_array().map(Vec::len), Some(2), "{listed}");
}
