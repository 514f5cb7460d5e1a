//! Things that break on purpose, while neighbours compute.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use outboard_e2e::{Driver, Folder, Program, Running, Server, programs};

/// A program that computes and checks what it gets until it is told to end.
struct Neighbour {
    program: Running,
    folder: Folder,
}

impl Neighbour {
    fn start(server: &Server) -> Neighbour {
        let folder = Folder::create();
        let mut program = Program::new("steady").arg(&folder.path("end")).start_through(server);
        program.wait_for_line("running");
        Neighbour { program, folder }
    }

    /// Ends it; every number was right.
    fn end_well(self) {
        self.folder.write("end", "");
        self.program.finish().expect_success("the neighbour");
    }
}

#[test]
fn faults_of_one_program_leave_a_neighbours_numbers_right() {
    let server = Server::start();
    let neighbour = Neighbour::start(&server);
    for fault in ["fault_address", "fault_assert", "fault_trap", "fault_null", "fault_misaligned"] {
        Program::new(fault).through(&server).expect_success(fault);
        Program::new("vector_add").through(&server).expect_success("the next program");
    }
    neighbour.end_well();
}

#[test]
fn memory_that_is_used_up_is_an_error_and_no_more() {
    let server = Server::start();
    // It takes no more memory once it runs: on a GPU there is none for it meanwhile.
    let mut neighbour = Program::new("endless").start_through(&server);
    neighbour.wait_for_line("running");
    Program::new("exhaust").through(&server).expect_success("exhaust");
    assert!(!neighbour.has_ended(), "the neighbour went on");
    Program::new("vector_add").through(&server).expect_success("the next program");
}

/// A folder for images that has no room; where none can be mounted, as only root can, one that
/// cannot be written, as root could.
struct Full {
    folder: Folder,
    mounted: bool,
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

impl Full {
    fn new() -> Full {
        let folder = Folder::create();
        let mounted =
            run("mount", &["-t", "tmpfs", "-o", "size=64k", "outboard-e2e", text(&folder)]);
        let full = Full { folder, mounted };
        if mounted {
            // The folders that are kept in it are there before it is full.
            fs::create_dir_all(full.folder.join("images")).expect("a folder can be made");
            let written = fs::write(full.filler(), vec![1; 1 << 20]);
            assert!(written.is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull));
        } else {
            full.writable(false);
        }
        full
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }

    fn writable(&self, writable: bool) {
        let mode =
            std::os::unix::fs::PermissionsExt::from_mode(if writable { 0o700 } else { 0o500 });
        fs::set_permissions(&*self.folder, mode).expect("the folder is this user's");
    }

    /// There is room from now on.
    fn empty(&self) {
        if self.mounted {
            fs::remove_file(self.filler()).expect("the file is there");
            assert!(
                run("mount", &["-o", "remount,size=64m", text(&self.folder)]),
                "it can be made larger"
            );
        } else {
            self.writable(true);
        }
    }

    /// Files of images, and others.
    fn files(&self) -> (usize, usize) {
        let (mut images, mut others, mut folders) = (0, 0, vec![self.folder.join("images")]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else if entry.file_name().to_string_lossy().starts_with("unfinished-") {
                    others += 1;
                } else {
                    images += 1;
                }
            }
        }
        (images, others)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

impl Drop for Full {
    fn drop(&mut self) {
        if self.mounted {
            run("umount", &["-l", text(&self.folder)]);
        } else {
            self.writable(true);
        }
    }
}

#[test]
fn a_full_disk_costs_no_session() {
    let full = Full::new();
    let images = full.folder.join("images");
    let server = Server::start_with(
        &["--driver", Driver::chosen().name(), "--image-cache", text(&images)],
        &[],
    );
    for _ in 0..2 {
        Program::new("vector_add")
            .through(&server)
            .expect_success("a program while the disk is full");
    }
    assert_eq!(full.files(), (0, 0), "nothing is left of what did not fit");
    server.expect_logged("image cache");
    full.empty();
    // As soon as there is room, images are kept, and they are whole.
    Program::new("vector_add").through(&server).expect_success("a program with room");
    assert!(
        outboard_e2e::within(outboard_e2e::PATIENCE, || full.files().0 > 0),
        "{:?} {}",
        full.files(),
        server.log()
    );
    let known = Program::new("vector_add").statistics(&server)["images_known"].as_u64();
    assert!(known > Some(0), "{known:?}");
    assert!(!server.log().contains("damaged"), "{}", server.log());
}

#[test]
fn a_clock_that_jumps_is_not_noticed() {
    let folder = Folder::create();
    let jump = folder.join("jump");
    let clock = programs().join("jumping_clock");
    let env = [("LD_PRELOAD", text(&clock)), ("JUMP_TO", text(&jump))];
    let mut server = Server::start_with(
        &["--driver", Driver::chosen().name(), "--warm", "1", "--drain", "600"],
        &env,
    );
    let neighbour = Neighbour::start(&server);
    const YEARS: i64 = 10 * 365 * 86400;
    for seconds in [YEARS, -YEARS, 3600, 0] {
        fs::write(&jump, seconds.to_string()).expect("the file can be written");
        Program::new("vector_add").through(&server).expect_success("a program after the jump");
    }
    // That the server's clock has jumped, its log shows: the times of its lines go forward and
    // back.
    let years: std::collections::BTreeSet<String> = server
        .log()
        .lines()
        .filter_map(|line| Some(line.split("\"timestamp\":\"").nth(1)?.get(..4)?.to_owned()))
        .collect();
    assert!(years.len() >= 3, "{years:?}");
    server.ask_to_stop();
    fs::write(&jump, YEARS.to_string()).expect("the file can be written");
    let waits = || server.log().contains("waiting for sessions to end");
    assert!(outboard_e2e::within(outboard_e2e::PATIENCE, waits), "{}", server.log());
    fs::write(&jump, (-YEARS).to_string()).expect("the file can be written");
    neighbour.end_well();
    let status = server.ended(outboard_e2e::PATIENCE);
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", server.log());
}
