//! The device, from inside the virtual machine.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::region::{Id, id_in};

/// In place of an id: the memory has none. It may be none of a server at all, so that only servers
/// write there, which have been told to.
pub const UNKNOWN: Id = [0; 16];

/// In place of a device: none.
pub const OFF: &str = "off";

/// Where the kernel shows PCI devices.
const DEVICES: &str = "/sys/bus/pci/devices";
/// By what this device is known there.
const VENDOR: &str = "0x1af4";
const DEVICE: &str = "0x1110";
/// Its memory. (`resource2_wc` does not keep stores in order.)
const MEMORY: &str = "resource2";

/// Memory that this machine shares with its host, and that a server uses there.
#[derive(Debug)]
pub struct Device {
    path: PathBuf,
    file: File,
    id: Id,
}

impl Device {
    /// The one that is named, or the first that this process may open. None if there is none, or
    /// the name is [`OFF`].
    ///
    /// # Errors
    /// Why one that is there cannot be used.
    pub fn find(named: Option<&Path>) -> io::Result<Option<Device>> {
        match named {
            Some(off) if off.as_os_str() == OFF => Ok(None),
            Some(path) => Device::open(path.to_owned()).map(Some),
            None => {
                let mut failed = None;
                for path in candidates() {
                    match Device::open(path) {
                        Ok(device) => return Ok(Some(device)),
                        Err(error) => failed = failed.or(Some(error)),
                    }
                }
                failed.map_or(Ok(None), Err)
            }
        }
    }

    fn open(path: PathBuf) -> io::Result<Device> {
        let said =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = File::options().read(true).write(true).open(&path).map_err(said)?;
        let id = id_in(&file).map_err(said)?.unwrap_or(UNKNOWN);
        Ok(Device { path, file, id })
    }

    /// By what the server knows the region; [`UNKNOWN`] if none has used it yet.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Where the device's memory is found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The memory.
    pub fn into_file(self) -> OwnedFd {
        self.file.into()
    }
}

/// The memory of each such device.
fn candidates() -> Vec<PathBuf> {
    let Ok(devices) = fs::read_dir(DEVICES) else { return Vec::new() };
    let says = |folder: &Path, name: &str, expected: &str| {
        fs::read_to_string(folder.join(name)).is_ok_and(|text| text.trim() == expected)
    };
    let folders = devices.flatten().map(|device| device.path());
    let mut found: Vec<_> = folders
        .filter(|folder| says(folder, "vendor", VENDOR) && says(folder, "device", DEVICE))
        .map(|folder| folder.join(MEMORY))
        .collect();
    found.sort();
    found
}
