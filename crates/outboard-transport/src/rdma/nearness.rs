//! How near adapters are to GPUs, by the places that the kernel shows of both.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows devices.
const SYSTEM: &str = "/sys";

/// A device's place on the machine's buses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// From the host bridge down to the device.
    path: Vec<OsString>,
    /// The memory that is nearest to it, where there are several.
    node: Option<u32>,
}

/// How near two devices are; the nearer, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Nearness {
    /// Between them lies what joins processors, or nobody knows.
    Far,
    /// Below two host bridges of one processor.
    OneNode,
    /// Below so many common bridges and switches, the host bridge among them.
    Below(usize),
}

impl Place {
    fn of(device: &Path) -> Option<Place> {
        let path = fs::canonicalize(device).ok()?;
        let below = path.iter().skip_while(|part| !is_host_bridge(part));
        let node = fs::read_to_string(path.join("numa_node")).ok();
        // -1 where the firmware does not say.
        let node = node.and_then(|node| node.trim().parse().ok());
        Some(Place { path: below.map(OsString::from).collect(), node })
    }

    fn nearness(&self, other: &Place) -> Nearness {
        let common = self.path.iter().zip(&other.path).take_while(|(own, other)| own == other);
        match common.count() {
            0 if self.node.is_some() && self.node == other.node => Nearness::OneNode,
            0 => Nearness::Far,
            common => Nearness::Below(common),
        }
    }
}

/// Whether a folder of the kernel's is a host bridge: `pci0000:15`.
fn is_host_bridge(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("pci") && name.contains(':'))
}

/// The folder of an adapter; that of its interface for one which is made of an interface.
fn adapter(system: &Path, name: &str) -> PathBuf {
    let shown = system.join("class/infiniband").join(name);
    let own = shown.join("device");
    if own.exists() {
        return own;
    }
    let interface = fs::read_to_string(shown.join("parent")).unwrap_or_default();
    system.join("class/net").join(interface.trim()).join("device")
}

/// Of the named adapters those that are nearest to any of these PCI devices, such as
/// `0000:1b:00.0`. All of them where the kernel does not show the places.
pub(super) fn nearest<'a>(adapters: &[&'a str], devices: &[String]) -> Vec<&'a str> {
    nearest_in(Path::new(SYSTEM), adapters, devices)
}

fn nearest_in<'a>(system: &Path, adapters: &[&'a str], devices: &[String]) -> Vec<&'a str> {
    let all = system.join("bus/pci/devices");
    let devices: Vec<Place> =
        devices.iter().filter_map(|name| Place::of(&all.join(name))).collect();
    let nearness = |name: &str| {
        let place = Place::of(&adapter(system, name));
        let to_each = place.iter().flat_map(|place| devices.iter().map(|it| place.nearness(it)));
        to_each.max().unwrap_or(Nearness::Far)
    };
    let found: Vec<_> = adapters.iter().map(|name| (*name, nearness(name))).collect();
    let best = found.iter().map(|(_, nearness)| *nearness).max();
    let is_best = |(_, nearness): &(&str, Nearness)| Some(*nearness) == best;
    found.into_iter().filter(is_best).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The kernel's files of a machine with two processors: the first has a switch with a GPU and
    /// an adapter, and an adapter beside that switch; the second has the like below two host
    /// bridges.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn create() -> Machine {
            Machine(tempfile::tempdir().unwrap())
        }

        fn device(&self, path: &str, node: &str) -> PathBuf {
            let folder = self.0.path().join("devices").join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("numa_node"), format!("{node}\n")).unwrap();
            let all = self.0.path().join("bus/pci/devices");
            fs::create_dir_all(&all).unwrap();
            symlink(&folder, all.join(folder.file_name().unwrap())).unwrap();
            folder
        }

        fn adapter(&self, name: &str, path: &str, node: &str) {
            let device = self.device(path, node);
            let shown = device.join("infiniband").join(name);
            fs::create_dir_all(&shown).unwrap();
            symlink(&device, shown.join("device")).unwrap();
            self.show("infiniband", name, &shown);
        }

        fn show(&self, class: &str, name: &str, folder: &Path) {
            let class = self.0.path().join("class").join(class);
            fs::create_dir_all(&class).unwrap();
            symlink(folder, class.join(name)).unwrap();
        }

        fn nearest(&self, adapters: &[&str], devices: &[&str]) -> Vec<String> {
            let devices: Vec<String> = devices.iter().map(|name| (*name).to_owned()).collect();
            nearest_in(self.0.path(), adapters, &devices).into_iter().map(str::to_owned).collect()
        }
    }

    fn two_processors() -> Machine {
        let machine = Machine::create();
        machine.device("pci0000:10/0000:10:01.0/0000:11:00.0/0000:1b:00.0", "0");
        machine.adapter("switched", "pci0000:10/0000:10:01.0/0000:11:00.0/0000:1a:00.0", "0");
        machine.adapter("beside", "pci0000:10/0000:10:02.0/0000:1c:00.0", "0");
        machine.device("pci0000:80/0000:80:01.0/0000:8b:00.0", "1");
        machine.adapter("there", "pci0000:90/0000:90:01.0/0000:9a:00.0", "1");
        machine
    }

    const ALL: [&str; 3] = ["beside", "switched", "there"];

    #[test]
    fn a_switch_is_nearer_than_a_bridge_and_a_processor_than_another_one() {
        let machine = two_processors();
        assert_eq!(machine.nearest(&ALL, &["0000:1b:00.0"]), ["switched"]);
        assert_eq!(machine.nearest(&["there", "beside"], &["0000:1b:00.0"]), ["beside"]);
        assert_eq!(machine.nearest(&ALL, &["0000:8b:00.0"]), ["there"]);
        assert_eq!(machine.nearest(&["there"], &["0000:1b:00.0"]), ["there"], "the only one");
    }

    #[test]
    fn of_several_gpus_that_with_the_nearest_adapter_counts() {
        let machine = two_processors();
        assert_eq!(machine.nearest(&ALL, &["0000:8b:00.0", "0000:1b:00.0"]), ["switched"]);
        machine.adapter("also", "pci0000:10/0000:10:01.0/0000:11:00.0/0000:1d:00.0", "0");
        let nearest = machine.nearest(&["also", "beside", "switched"], &["0000:1b:00.0"]);
        assert_eq!(nearest, ["also", "switched"], "as near as each other");
    }

    #[test]
    fn what_has_no_place_is_as_far_as_anything() {
        let machine = two_processors();
        assert_eq!(machine.nearest(&ALL, &[]), ALL);
        assert_eq!(machine.nearest(&ALL, &["0000:ff:00.0"]), ALL);
        assert_eq!(machine.nearest(&["none", "there"], &["0000:8b:00.0"]), ["there"]);
        let unsaid = Machine::create();
        unsaid.device("pci0000:10/0000:1b:00.0", "-1");
        unsaid.adapter("a", "pci0000:20/0000:2b:00.0", "-1");
        unsaid.adapter("b", "pci0000:30/0000:3b:00.0", "0");
        assert_eq!(unsaid.nearest(&["a", "b"], &["0000:1b:00.0"]), ["a", "b"]);
    }

    #[test]
    fn an_adapter_made_of_an_interface_is_where_that_is() {
        let machine = two_processors();
        let folder = machine.device("pci0000:80/0000:80:01.0/0000:8c:00.0", "1");
        let interface = folder.join("net/eth0");
        fs::create_dir_all(&interface).unwrap();
        symlink(&folder, interface.join("device")).unwrap();
        machine.show("net", "eth0", &interface);
        let shown = machine.0.path().join("devices/virtual/infiniband/rxe0");
        fs::create_dir_all(&shown).unwrap();
        fs::write(shown.join("parent"), "eth0\n").unwrap();
        machine.show("infiniband", "rxe0", &shown);
        assert_eq!(machine.nearest(&["there", "rxe0"], &["0000:8b:00.0"]), ["rxe0"]);
        assert_eq!(machine.nearest(&["beside", "rxe0"], &["0000:1b:00.0"]), ["beside"]);
    }
}
