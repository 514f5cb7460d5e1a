//! Devices and their ports.

use std::ffi::{CStr, c_int, c_uint};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::error::Error;
use crate::ffi;
use crate::gid::{self, Gid, GidEntry, GidKind};
use crate::library::Library;

/// The names of the devices that this machine has.
///
/// # Errors
/// [`Error::NoDevice`], or why the library cannot be used.
pub fn names() -> Result<Vec<String>, Error> {
    let list = List::get(Library::get()?)?;
    Ok(list.devices().map(|device| list.name(device)).collect())
}

/// What the library lists; freed with this value.
struct List {
    library: &'static Library,
    first: NonNull<*mut ffi::Device>,
    count: usize,
}

impl List {
    fn get(library: &'static Library) -> Result<List, Error> {
        let mut count = 0;
        // SAFETY: the library writes the number of devices, and returns the list or null.
        let first = unsafe { (library.ibv_get_device_list)(&mut count) };
        let first = NonNull::new(first).ok_or(Error::NoDevice)?;
        Ok(List { library, first, count: usize::try_from(count).unwrap_or(0) })
    }

    fn devices(&self) -> impl Iterator<Item = *mut ffi::Device> {
        // SAFETY: the library has listed so many devices, until this value frees the list.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }.iter().copied()
    }

    fn name(&self, device: *mut ffi::Device) -> String {
        // SAFETY: `device` is in the list, and its name is a C string inside it.
        let name = unsafe { CStr::from_ptr((self.library.ibv_get_device_name)(device)) };
        name.to_string_lossy().into_owned()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the library made it, and nobody uses its devices any more.
        unsafe { (self.library.ibv_free_device_list)(self.first.as_ptr()) };
    }
}

/// An open device. What is made of it keeps it open.
#[derive(Debug)]
pub struct Device {
    pub(crate) library: &'static Library,
    pub(crate) context: NonNull<ffi::Context>,
    name: String,
}

// SAFETY: verbs may be called from any thread.
unsafe impl Send for Device {}
// SAFETY: and by several at once.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device of that name.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`], why the library cannot be used, or why the device cannot be
    /// opened.
    pub fn open(name: &str) -> Result<Arc<Device>, Error> {
        let library = Library::get()?;
        let list = List::get(library)?;
        let Some(found) = list.devices().find(|device| list.name(*device) == name) else {
            let present = list.devices().map(|device| list.name(device)).collect();
            return Err(Error::UnknownDevice { name: name.to_owned(), present });
        };
        // SAFETY: the device is in the list, which is still there.
        let context = unsafe { (library.ibv_open_device)(found) };
        let Some(context) = NonNull::new(context) else {
            return Err(failure("ibv_open_device", name));
        };
        let device = Device { library, context, name: name.to_owned() };
        device.make_nonblocking(device.async_descriptor())?;
        Ok(Arc::new(device))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The descriptors behind it, which a forked child must let go.
    #[must_use]
    pub fn descriptors(&self) -> [RawFd; 2] {
        // SAFETY: the context lives as long as this value.
        let context = unsafe { self.context.as_ref() };
        [context.cmd_fd, context.async_fd]
    }

    /// The descriptor that is readable when [`failed`](Self::failed) has something to find out.
    #[must_use]
    pub fn async_descriptor(&self) -> RawFd {
        self.descriptors()[1]
    }

    /// Takes what the adapter has reported; whether it, or what was made of it, has failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        let mut failed = false;
        loop {
            let mut event = ffi::AsyncEvent { element: null_mut(), event_type: 0 };
            // SAFETY: the context is open, and the library writes one event if there is one. Its
            // descriptor does not block.
            if unsafe { (self.library.ibv_get_async_event)(self.context.as_ptr(), &mut event) } != 0
            {
                return failed;
            }
            failed |= matches!(
                event.event_type,
                ffi::IBV_EVENT_CQ_ERR
                    | ffi::IBV_EVENT_QP_FATAL
                    | ffi::IBV_EVENT_QP_REQ_ERR
                    | ffi::IBV_EVENT_QP_ACCESS_ERR
                    | ffi::IBV_EVENT_DEVICE_FATAL
            );
            // SAFETY: the library gave this event, which is acknowledged once.
            unsafe { (self.library.ibv_ack_async_event)(&mut event) };
        }
    }

    fn attributes(&self) -> Result<ffi::DeviceAttr, Error> {
        // SAFETY: the structure is made of integers only, for which all zeros are a value.
        let mut attr: ffi::DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open; the library fills the structure.
        let result = unsafe { (self.library.ibv_query_device)(self.context.as_ptr(), &mut attr) };
        self.check("ibv_query_device", result)?;
        Ok(attr)
    }

    /// How many reads a queue pair of it may have under way at most.
    ///
    /// # Errors
    /// Why the library cannot say.
    pub fn reads(&self) -> Result<Reads, Error> {
        let attr = self.attributes()?;
        let bounded = |most: c_int| u8::try_from(most.max(0)).unwrap_or(u8::MAX);
        Ok(Reads { begun: bounded(attr.max_qp_init_rd_atom), served: bounded(attr.max_qp_rd_atom) })
    }

    /// Its ports that can carry something.
    ///
    /// # Errors
    /// Why the library cannot say.
    pub fn ports(&self) -> Result<Vec<Port>, Error> {
        let attr = self.attributes()?;
        let gids = self.gids()?;
        let mut ports = Vec::new();
        for number in 1..=attr.phys_port_cnt {
            let mut attr = ffi::PortAttr::default();
            // SAFETY: the context is open; the library fills the structure, of which it knows at
            // most what its header has.
            let result =
                unsafe { (self.library.ibv_query_port)(self.context.as_ptr(), number, &mut attr) };
            self.check("ibv_query_port", result)?;
            if attr.state != ffi::IBV_PORT_ACTIVE {
                continue;
            }
            let gids = gids
                .iter()
                .filter(|(port, _)| *port == u32::from(number))
                .map(|(_, gid)| *gid)
                .collect();
            let mtu = Mtu::from_number(attr.active_mtu);
            let ethernet = attr.link_layer == ffi::IBV_LINK_LAYER_ETHERNET as u8;
            ports.push(Port { number, ethernet, lid: attr.lid, mtu, gids });
        }
        Ok(ports)
    }

    fn gids(&self) -> Result<Vec<(u32, GidEntry)>, Error> {
        /// More than adapters have.
        const MOST: usize = 1024;
        let mut entries = vec![ffi::GidEntry::default(); MOST];
        // SAFETY: the context is open; the library writes at most MOST entries of that size.
        let count = unsafe {
            (self.library._ibv_query_gid_table)(
                self.context.as_ptr(),
                entries.as_mut_ptr(),
                MOST,
                0,
                size_of::<ffi::GidEntry>(),
            )
        };
        let count = usize::try_from(count).map_err(|_| Error::Call {
            call: "ibv_query_gid_table",
            device: self.name.clone(),
            errno: i32::try_from(-count).unwrap_or(libc::EIO),
        })?;
        entries.truncate(count);
        Ok(entries.iter().filter_map(gid_entry).collect())
    }

    /// The port to use, with the address by which it is reached: the one that has `wanted`, if a
    /// port does, or else the first.
    ///
    /// # Errors
    /// [`Error::NoPort`] if no port is active, or why the library cannot say.
    pub fn endpoint(self: &Arc<Self>, wanted: Option<IpAddr>) -> Result<Endpoint, Error> {
        let usable = self.ports()?.into_iter().filter_map(|port| {
            let gid = gid::choose(&port.gids, wanted);
            (gid.is_some() || !port.ethernet).then_some((port, gid))
        });
        let (port, gid) = usable
            .max_by_key(|(port, gid)| {
                let has_it = gid.is_some_and(|gid| Some(gid.gid.ip()) == wanted);
                (has_it, std::cmp::Reverse(port.number))
            })
            .ok_or_else(|| Error::NoPort { device: self.name.clone() })?;
        Ok(Endpoint { device: Arc::clone(self), port, gid })
    }

    /// The result of a verb that returns the system's error.
    pub(crate) fn check(&self, call: &'static str, result: i32) -> Result<(), Error> {
        match result {
            0 => Ok(()),
            errno => Err(Error::Call { call, device: self.name.clone(), errno: errno.abs() }),
        }
    }

    /// What a verb has made, if it has not returned null.
    pub(crate) fn made<T>(&self, call: &'static str, made: *mut T) -> Result<NonNull<T>, Error> {
        NonNull::new(made).ok_or_else(|| failure(call, &self.name))
    }

    pub(crate) fn make_nonblocking(&self, descriptor: RawFd) -> Result<(), Error> {
        // SAFETY: the library has opened the descriptor, which lives as long as what it belongs to.
        let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
        let made = rustix::fs::fcntl_getfl(descriptor)
            .and_then(|flags| rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK));
        made.map_err(|errno| Error::Call {
            call: "fcntl",
            device: self.name.clone(),
            errno: errno.raw_os_error(),
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the library opened it, and what was made of it has been destroyed: that keeps
        // the device alive.
        unsafe { (self.library.ibv_close_device)(self.context.as_ptr()) };
    }
}

fn failure(call: &'static str, device: &str) -> Error {
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Error::Call { call, device: device.to_owned(), errno }
}

fn gid_entry(entry: &ffi::GidEntry) -> Option<(u32, GidEntry)> {
    let kind = match entry.gid_type {
        ffi::IBV_GID_TYPE_IB => GidKind::InfiniBand,
        ffi::IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
        ffi::IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
        _ => return None,
    };
    let index = u8::try_from(entry.gid_index).ok()?;
    Some((entry.port_num, GidEntry { gid: Gid(entry.gid.0), index, kind }))
}

/// How many reads of the peer's memory may be under way: those that an end begins, and those of the
/// peer that it serves. The peer must serve as many as an end begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// Of the peer's memory.
    pub begun: u8,
    /// Of memory here.
    pub served: u8,
}

/// A port whose link is up.
#[derive(Debug, Clone)]
pub struct Port {
    /// Which of the device's, from 1.
    pub number: u8,
    /// Whether its link is Ethernet, and not InfiniBand.
    pub ethernet: bool,
    /// Its address within its InfiniBand subnet.
    pub lid: u16,
    /// The largest packet that the link carries now.
    pub mtu: Mtu,
    /// Its global addresses.
    pub gids: Vec<GidEntry>,
}

/// The port by which a device is used, and the address by which the port is reached.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The device.
    pub device: Arc<Device>,
    /// Its port.
    pub port: Port,
    /// The port's global address, which it need not have in InfiniBand.
    pub gid: Option<GidEntry>,
}

/// Bytes that a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(u8);

impl Mtu {
    /// The largest.
    pub const MOST: Mtu = Mtu(ffi::IBV_MTU_4096 as u8);

    /// Of the library's number; one that it does not name counts as the smallest.
    fn from_number(number: c_uint) -> Mtu {
        let known = (ffi::IBV_MTU_256..=ffi::IBV_MTU_4096).contains(&number);
        Mtu(if known { number as u8 } else { ffi::IBV_MTU_256 as u8 })
    }

    /// The largest that is not more than so many bytes; none for less than 256.
    #[must_use]
    pub fn within(bytes: u32) -> Option<Mtu> {
        (ffi::IBV_MTU_256..=ffi::IBV_MTU_4096)
            .rev()
            .map(Mtu::from_number)
            .find(|mtu| mtu.bytes() <= bytes)
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        128 << self.0
    }

    pub(crate) fn number(self) -> c_uint {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_packets_are_powers_of_two() {
        let within = |bytes| Mtu::within(bytes).map(Mtu::bytes);
        assert_eq!(within(255), None);
        assert_eq!(within(256), Some(256));
        assert_eq!(within(1500), Some(1024));
        assert_eq!(within(9000), Some(4096));
        assert_eq!(Mtu::MOST.bytes(), 4096);
        assert_eq!(Mtu::from_number(77).bytes(), 256);
    }
}
