//! Files whose bytes move to and from device memory, by Outboard's `libcufile.so.0`.

use std::path::PathBuf;
use std::process::Command;

use outboard_e2e::{Driver, Folder, Program, Server, dist, programs};

fn server() -> Server {
    Server::start_with(&["--driver", Driver::chosen().name()], &[])
}

fn library() -> PathBuf {
    dist().join("lib/outboard/client/libcufile.so.0")
}

fn program(how: &str, folder: &Folder) -> Program {
    Program::new("cufile").arg(how).arg(&folder.path("."))
}

#[test]
fn files_are_read_and_written() {
    let (server, folder) = (server(), Folder::create());
    let all = program("all", &folder);
    all.through(&server).expect_success("over TCP");
    all.sharing_memory().through(&server).expect_success("with shared memory");
}

#[test]
fn settings_are_kept_and_told() {
    let (server, folder) = (server(), Folder::create());
    program("settings", &folder).through(&server).expect_success("settings");
}

#[test]
fn freed_memory_is_an_error() {
    let (server, folder) = (server(), Folder::create());
    let freed = program("freed", &folder);
    freed.through(&server).expect_success("over TCP");
    freed.sharing_memory().through(&server).expect_success("with shared memory");
}

/// The driver library is that of the software device, which is Outboard's as well.
#[test]
fn a_device_of_the_process_has_files_too() {
    let folder = Folder::create();
    let library = library();
    let library = library.to_str().expect("a plain path");
    program("all", &folder).env("LD_PRELOAD", library).directly().expect_success("directly");
}

/// The driver library is none of Outboard's, or there is none.
#[test]
fn without_outboards_driver_library_calls_fail() {
    let folder = Folder::create();
    let mut command = Command::new(programs().join("cufile"));
    command.args(["absent", &folder.path(".")]).env("LD_PRELOAD", library());
    let output = command.env("CUFILE_LOGGING_LEVEL", "ERROR").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(said.matches("start the program with `outboard run`").count(), 1, "{said}");
}

/// What stands in the library for others: cuFile's functions and nothing else of ours.
#[test]
fn the_library_exports_cufile_and_loads_nothing() {
    let tell = |program: &str, flags: &[&str]| {
        let output = Command::new(program).args(flags).arg(library()).output();
        String::from_utf8(output.expect("binutils are there").stdout).expect("text")
    };
    let symbols = tell("nm", &["-D", "--defined-only"]);
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert!(names.contains(&"cuFileRead") && names.contains(&"cuFileDriverClose_v2"), "{names:?}");
    let is_known = |name: &&&str| name.starts_with("cuFile") || **name == "outboard_cufile";
    assert_eq!(names.iter().filter(is_known).count(), names.len(), "{names:?}");
    let needed = tell("readelf", &["-d"]);
    for library in needed.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = ["libc.so", "libgcc_s.so", "ld-linux", "libdl.so", "libpthread.so"];
        assert!(known.iter().any(|known| library.contains(known)), "{library}");
    }
    assert!(needed.contains("[libcufile.so.0]"), "{needed}");
}

/// The program's own cuFile stands where its run path says, before all other search paths.
#[test]
fn a_program_that_brings_its_own_cufile_gets_ours() {
    let folder = Folder::create();
    let compile = |arguments: &[&str]| {
        let status = Command::new("cc").args(arguments).current_dir(folder.path("")).status();
        assert!(status.expect("cc starts").success());
    };
    let write = |name: &str, text: &str| std::fs::write(folder.path(name), text).expect("written");
    write("own.c", "long cuFileUseCount(void) { return 77; }\n");
    write(
        "program.c",
        "#include <stdio.h>\nlong cuFileUseCount(void);\n\
         int main(void) { printf(\"%ld\\n\", cuFileUseCount()); return 0; }\n",
    );
    compile(&["-shared", "-fPIC", "-Wl,-soname,libcufile.so.0", "own.c", "-o", "libcufile.so.0"]);
    let path = format!("-Wl,--disable-new-dtags,-rpath,{}", folder.path("."));
    compile(&["program.c", "libcufile.so.0", &path, "-o", "program"]);
    let server = server();
    for (wanted, count) in [("on", "0\n"), ("off", "77\n")] {
        let mut command = outboard_e2e::command();
        command.args(["run", "--server", server.address(), "--"]).arg(folder.path("program"));
        let output = command.env("OUTBOARD_CUFILE", wanted).output().expect("outboard starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), count, "{wanted}");
    }
}
