//! Tests that could not run: what they lack, and what would run them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::count::Failure;

/// Something that tests need and machines may lack.
struct Lack {
    what: &'static str,
    /// Words of the reasons that tests give for it.
    reasons: &'static [&'static str],
    /// What would run them.
    remedy: &'static str,
    /// Whether this machine has it all the same.
    is_there: fn() -> bool,
}

/// The first whose words are in a reason is what the test lacks.
const LACKS: &[Lack] = &[
    Lack {
        what: "a path that RDMA tests are given",
        reasons: &["names no devices at the places of GPUs", "names no two cables"],
        remedy: "`cargo xtask rdma`, in an emulated machine",
        is_there: || false,
    },
    Lack {
        what: "an RDMA device",
        reasons: &["RDMA", "names no two devices", "rdma"],
        remedy: "`cargo xtask rdma`, in an emulated machine",
        is_there: || has_entries("/sys/class/infiniband"),
    },
    Lack {
        what: "a kernel with vsock's loopback",
        reasons: &["vsock"],
        remedy: "`cargo xtask vm`, in an emulated machine",
        is_there: || Path::new("/sys/module/vsock_loopback").exists(),
    },
    Lack {
        what: "an NFS share",
        reasons: &["names no places with NFS"],
        remedy: "`cargo xtask nfs`, in an emulated machine",
        is_there: || false,
    },
    Lack {
        what: "a GPU",
        reasons: &["GPU", "NCCL", "nvidia-smi", "software device have memory of their own"],
        remedy: "`cargo xtask test --driver nvidia` on a machine with an NVIDIA GPU",
        is_there: || Path::new("/dev/nvidiactl").exists(),
    },
    Lack {
        what: "control groups that root hands down",
        reasons: &["hands down no controllers"],
        remedy: "the same command where systemd delegates them",
        is_there: || false,
    },
    Lack {
        what: "a program or a package of another project",
        reasons: &["is not installed"],
        remedy: "installing it",
        is_there: || false,
    },
    Lack {
        what: "Linux 6.4 and the right to `userfaultfd`",
        reasons: &["userfaultfd"],
        remedy: "the same command as root, outside containers that forbid the call",
        is_there: || false,
    },
    Lack {
        what: "root",
        reasons: &["root", "this user may not", "may neither change users"],
        remedy: "the same command as root",
        is_there: || rustix::process::geteuid().is_root(),
    },
];

fn has_entries(folder: &str) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// The one that a skipped test lacks, by what was said: its name and why.
fn lack(skipped: &str) -> Option<&'static Lack> {
    LACKS.iter().find(|lack| lack.reasons.iter().any(|word| skipped.contains(word)))
}

/// Skipped tests, grouped by what they lack.
pub(super) fn told(skipped: &[String]) -> String {
    let mut text = String::new();
    for lack in LACKS {
        let of_it: Vec<&String> = skipped
            .iter()
            .filter(|test| self::lack(test).is_some_and(|its| std::ptr::eq(its, lack)))
            .collect();
        if !of_it.is_empty() {
            let Lack { what, remedy, .. } = lack;
            let count = of_it.len();
            let _ =
                writeln!(text, "\nWithout {what}, {count} were skipped. To run them: {remedy}.");
            of_it.iter().for_each(|test| text += &format!("    {test}\n"));
        }
    }
    let others: Vec<&String> = skipped.iter().filter(|test| lack(test).is_none()).collect();
    if !others.is_empty() {
        text += "\nFor other reasons:\n";
        others.iter().for_each(|test| text += &format!("    {test}\n"));
    }
    text
}

/// Tests that were skipped although this machine has what they lack.
pub(super) fn needless(skipped: &[String]) -> Vec<Failure> {
    let is_needless = |test: &&String| lack(test).is_some_and(|lack| (lack.is_there)());
    let failure = |test: &String| {
        let (name, why) = test.split_once(": ").unwrap_or((test, ""));
        Failure::new(name, "", format!("it was skipped ({why}), but this machine could run it"))
    };
    skipped.iter().filter(is_needless).map(failure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_grouped_by_what_they_lack() {
        let skipped = [
            "one: this kernel has no vsock loopback: no such device",
            "two: OUTBOARD_TEST_RDMA names no two devices",
            "three: it is Monday",
            "four: there is no device for RDMA",
        ];
        let told = told(&skipped.map(str::to_owned));
        let lines: Vec<&str> = told.lines().filter(|line| !line.is_empty()).collect();
        assert!(
            lines[0].starts_with("Without an RDMA device, 2 were skipped. To run them: `cargo")
        );
        assert_eq!([lines[1].trim(), lines[2].trim()], [skipped[1], skipped[3]]);
        assert!(lines[3].starts_with("Without a kernel with vsock's loopback, 1 "));
        assert_eq!(lines[5..], ["For other reasons:", "    three: it is Monday"]);
    }

    #[test]
    fn a_test_that_the_machine_could_run_is_not_skipped() {
        let is_root = rustix::process::geteuid().is_root();
        let needless = needless(&["one: only root may".to_owned(), "two: it is Monday".to_owned()]);
        assert_eq!(needless.len(), usize::from(is_root));
        assert!(needless.iter().all(|failure| failure.test == "one"));
    }
}
