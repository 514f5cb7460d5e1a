//! NVML for the devices of a server, and for the software device of a process: through
//! nvidia-ml-py, and through the C functions beside CUDA.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use outboard_e2e::{Driver, Lines, Program, Server, command, dist, programs, within};
use outboard_test_support::skip;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// nvml.py with what these flags choose.
fn script(flags: &[&str], what: &str, driver: Driver) -> Command {
    let mut command = command();
    command.arg("run").args(flags).arg("--");
    command.arg(root().join(".venv/bin/python3")).arg(root().join("tests/e2e/tests/nvml.py"));
    command.args([what, driver.name()]);
    command
}

/// nvml.py with the devices of a list.
fn python(list: &str, what: &str) -> Command {
    script(&["--server", list], what, Driver::chosen())
}

/// nvml.py with two software devices of 1 GiB in its own process.
fn here(what: &str) -> Command {
    let mut command = script(&["--local-cpu"], what, Driver::Cpu);
    command.env("OUTBOARD_CPU_DEVICES", "2").env("OUTBOARD_CPU_MEMORY", "1G");
    command
}

fn finish(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("outboard starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}

#[test]
fn questions_are_answered() {
    finish(python(Server::start().address(), "questions"));
}

#[test]
fn questions_reach_the_servers_library_and_answers_come_back_whole() {
    let library = programs().join("fake_nvml").display().to_string();
    let server = Server::start_with(
        &["--driver", "cpu", "--nvml", &library],
        &[("OUTBOARD_CPU_DEVICES", "2")],
    );
    finish(python(server.address(), "forwarded"));
}

#[test]
fn links_lead_to_devices_as_the_program_addresses_them() {
    let library = programs().join("fake_nvml").display().to_string();
    let start = || {
        let arguments = ["--driver", "cpu", "--nvml", library.as_str()];
        Server::start_with(&arguments, &[("OUTBOARD_CPU_DEVICES", "2")])
    };
    let (first, second) = (start(), start());
    finish(python(&format!("{},{}", first.address(), second.address()), "linked"));
}

/// Where NVIDIA's program is installed, it says the same of a server's devices as of this
/// machine's.
#[test]
fn nvidia_smi_lists_the_devices() {
    if Driver::chosen() != Driver::Nvidia {
        skip!("it is about a GPU");
    }
    let Ok(native) = Command::new("nvidia-smi").arg("-L").output() else {
        skip!("nvidia-smi is not installed");
    };
    let server = Server::start();
    let through = |arguments: &[&str]| {
        let mut command = command();
        command.args(["run", "--server", server.address(), "--", "nvidia-smi"]).args(arguments);
        finish(command)
    };
    assert_eq!(through(&["-L"]), String::from_utf8_lossy(&native.stdout));
    assert!(through(&[]).contains("Driver Version"));
    assert!(through(&["-q"]).contains("GPU UUID"));
    let values = through(&[
        "--query-gpu=name,memory.total,memory.used,utilization.gpu,temperature.gpu",
        "--format=csv,noheader",
    ]);
    assert!(
        values.lines().all(|line| line.split(", ").count() == 5 && !line.contains("Error")),
        "{values}"
    );
}

#[test]
fn what_would_change_a_gpu_is_refused() {
    finish(python(Server::start().address(), "refusals"));
}

#[test]
fn threads_and_forked_children_may_ask() {
    let server = Server::start();
    finish(python(server.address(), "threads"));
    finish(python(server.address(), "fork"));
}

#[test]
fn devices_are_those_of_the_list_in_its_order() {
    let server = Server::start_with(&["--driver", "cpu"], &[("OUTBOARD_CPU_DEVICES", "3")]);
    let all = finish(python(server.address(), "devices"));
    let all: Vec<&str> = all.lines().collect();
    assert_eq!(all.len(), 3);
    let list = format!("{0}/2,{0}/0", server.address());
    assert_eq!(finish(python(&list, "devices")).lines().collect::<Vec<_>>(), [all[2], all[0]]);
}

#[test]
fn all_processors_of_the_programs_machine_are_near() {
    finish(python(Server::start().address(), "affinity"));
    finish(here("affinity"));
}

#[test]
fn nvidia_smis_own_functions_are_there() {
    let server = Server::start_with(&["--driver", "cpu"], &[("OUTBOARD_CPU_DEVICES", "2")]);
    finish(script(&["--server", server.address()], "table", Driver::Cpu));
    finish(here("table"));
}

#[test]
fn a_process_is_listed_while_it_runs() {
    let server = Server::start();
    finish(python(server.address(), "nobody"));
    let mut running = Program::new("endless").arg("64").start_through(&server);
    running.wait_for_line("running");
    let mut command = python(server.address(), "process");
    command.arg(running.id().to_string());
    finish(command);
    running.kill();
    assert!(within(Duration::from_secs(20), || server.workers().is_empty()), "its worker ends");
    finish(python(server.address(), "nobody"));
}

#[test]
fn a_lost_server_is_a_lost_gpu() {
    // The client waits as long as the server would have kept the session.
    let server = Server::start_with(&["--driver", Driver::chosen().name(), "--grace", "2"], &[]);
    let mut child = python(server.address(), "lost")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("outboard starts");
    Lines::of(child.stdout.take()).find("ready");
    drop(server);
    child.stdin.take().expect("a pipe").write_all(b"\n").expect("the program listens");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn without_a_server_nothing_starts() {
    let mut command = Command::new(root().join(".venv/bin/python3"));
    command.arg(root().join("tests/e2e/tests/nvml.py")).args(["unreachable", "cpu"]);
    command
        .env("LD_LIBRARY_PATH", dist().join("lib/outboard/client"))
        .env("OUTBOARD_SERVER", "127.0.0.1:1");
    finish(command);
}

#[test]
fn nvml_and_cuda_speak_of_the_same_devices() {
    let server = Server::start();
    let program = Program::new("nvml");
    let remote = program.clone().arg("remote").through(&server);
    remote.expect_success("nvml");
    if Driver::chosen() == Driver::Nvidia {
        let native = program.directly();
        native.expect_success("nvml, natively");
        assert_eq!(native.stdout, remote.stdout);
    }
}

#[test]
fn the_software_device_of_a_process_answers_without_a_server() {
    for what in ["questions", "refusals", "threads", "fork"] {
        finish(here(what));
    }
    let listed = finish(here("devices"));
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let mut running = command();
    running.args(["run", "--local-cpu", "--"]).arg(programs().join("nvml")).arg("remote");
    running.env("OUTBOARD_CPU_DEVICES", "2");
    let said = finish(running);
    assert!(said.contains("device 1: ") && said.ends_with("nvml: ok\n"), "{said}");
}

#[test]
fn nvml_of_the_software_device_starts_nothing() {
    finish(here("quiet"));
}

#[test]
fn a_child_of_a_process_with_a_software_device_holds_nothing_of_it() {
    finish(here("fork_beside_cuda"));
}

#[test]
fn every_symbol_of_the_native_library_is_exported_and_nothing_else() {
    let mut wanted = BTreeSet::new();
    for file in ["nvml-13.0.toml", "nvml-580.toml"] {
        let text = std::fs::read_to_string(root().join("api/facts").join(file)).expect("facts");
        let functions = text.lines().skip_while(|line| *line != "[functions]");
        let names =
            functions.filter_map(|line| line.split_once(" = [")).map(|(name, _)| name.to_owned());
        wanted.extend(names.filter(|name| name.starts_with("nvml")));
    }
    assert_eq!(wanted.len(), 404, "as many as the library of the driver 580 exports");
    // How a server tells this library from NVIDIA's.
    wanted.insert("outboard_nvml".to_owned());
    let library = dist().join("lib/outboard/client/libnvidia-ml.so.1");
    let nm =
        Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("nm starts");
    let listed = String::from_utf8(nm.stdout).expect("names");
    let exported: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect();
    assert_eq!(exported, wanted);
}
