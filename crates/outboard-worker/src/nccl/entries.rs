//! The entries of a loaded library's table by which it calls functions of others.
//!
//! A library calls another one's functions by addresses that the loader has written to its memory.
//! What is written there instead is called by that library alone: the worker itself, its driver and
//! other libraries go on as before.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};

/// A function by its name, and what is called in its place.
pub(super) type Replacement = (&'static CStr, *const c_void);

/// An entry of a library's dynamic section.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// Says how to make an entry.
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// `link_map`, as far as it is documented.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const libc::c_char,
    dynamic: *const Dynamic,
}

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

/// The kinds of entries that hold a function's address and nothing else: of the procedure table, of
/// the table of addresses, and in data.
#[cfg(target_arch = "x86_64")]
const KINDS: [u64; 3] = [7, 6, 1];
#[cfg(target_arch = "aarch64")]
const KINDS: [u64; 3] = [1026, 1025, 257];

/// Replaces functions of other libraries in what the loaded library calls, and says in how many
/// entries. All must have one.
///
/// # Safety
/// Each replacement has the type of the function that it replaces, and no other thread is in the
/// library.
pub(super) unsafe fn replace(
    library: &Path,
    replacements: &[Replacement],
) -> Result<usize, String> {
    let map = loaded(library)?;
    // SAFETY: the library stays loaded, and so does what describes it.
    let (map, sealed) = unsafe { (&*map, sealed(map)) };
    // SAFETY: as above.
    let found = unsafe { entries(map) };
    let mut replaced = 0;
    for (name, replacement) in replacements {
        let mut entries = found.iter().filter(|(of, _)| of == name).peekable();
        if entries.peek().is_none() {
            return Err(format!("it does not call {}", name.to_string_lossy()));
        }
        for (_, entry) in entries {
            // SAFETY: an entry of the library's, by the contract above.
            unsafe { write(*entry, *replacement, &sealed)? };
            replaced += 1;
        }
    }
    Ok(replaced)
}

unsafe extern "C" {
    /// Declared by the crate `libc` for glibc alone.
    fn dlinfo(handle: *mut c_void, request: c_int, info: *mut c_void) -> c_int;
}

const RTLD_DI_LINKMAP: c_int = 2;

/// What the loader knows of a library that it has loaded.
fn loaded(library: &Path) -> Result<*const LinkMap, String> {
    let name = CString::new(library.as_os_str().as_bytes()).map_err(|_| "an odd name")?;
    // SAFETY: nothing is loaded by this; the handle is never closed, as the library stays.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return Err("it is not loaded".to_owned());
    }
    let mut map: *const LinkMap = null_mut();
    // SAFETY: the handle is a library's; the answer is one pointer.
    let outcome = unsafe { dlinfo(handle, RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    if outcome == 0 && !map.is_null() { Ok(map) } else { Err("nothing is known of it".to_owned()) }
}

/// Names of functions, and where their addresses are written.
///
/// # Safety
/// The library is loaded, and stays so.
unsafe fn entries(map: &LinkMap) -> Vec<(&'static CStr, usize)> {
    let value = |tag: i64| {
        let mut at = map.dynamic;
        loop {
            // SAFETY: the section ends with an entry whose tag is zero.
            let entry = unsafe { *at };
            if entry.tag == tag {
                return Some(entry.value as usize);
            }
            if entry.tag == 0 {
                return None;
            }
            at = at.wrapping_add(1);
        }
    };
    // Some loaders leave addresses as they are in the file.
    let address =
        |tag| value(tag).map(|value| if value < map.address { value + map.address } else { value });
    let (Some(symbols), Some(names)) = (address(DT_SYMTAB), address(DT_STRTAB)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (table, bytes) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
        let (Some(table), Some(bytes)) = (address(table), value(bytes)) else { continue };
        for index in 0..bytes / size_of::<Relocation>() {
            // SAFETY: the table has as many entries.
            let relocation = unsafe { *with_exposed_provenance::<Relocation>(table).add(index) };
            let symbol = (relocation.info >> 32) as usize;
            if symbol == 0 || !KINDS.contains(&(relocation.info & 0xffff_ffff)) {
                continue;
            }
            // SAFETY: relocations name symbols, and symbols names, of their own library.
            let name = unsafe {
                let symbol = &*with_exposed_provenance::<libc::Elf64_Sym>(symbols).add(symbol);
                CStr::from_ptr(with_exposed_provenance(names + symbol.st_name as usize))
            };
            found.push((name, map.address + relocation.offset as usize));
        }
    }
    found
}

/// The memory that the loader has sealed once everything was written: entries are in it if the
/// library wants all addresses at once.
///
/// # Safety
/// The library is loaded, and stays so.
unsafe fn sealed(map: *const LinkMap) -> std::ops::Range<usize> {
    struct Search {
        address: usize,
        found: std::ops::Range<usize>,
    }
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _bytes: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's description of a library, and the caller's search.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        if info.dlpi_addr as usize != search.address {
            return 0;
        }
        for index in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: it has as many headers.
            let header = unsafe { &*info.dlpi_phdr.add(index) };
            if header.p_type == libc::PT_GNU_RELRO {
                let begin = search.address + header.p_vaddr as usize;
                search.found = begin..begin + header.p_memsz as usize;
            }
        }
        1
    }
    // SAFETY: by the contract above.
    let mut search = Search { address: unsafe { (*map).address }, found: 0..0 };
    // SAFETY: the function takes what it is given here.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// Writes an address to an entry, and seals it again if it was.
///
/// # Safety
/// The entry is one of a loaded library's, which no other thread uses.
unsafe fn write(
    entry: usize,
    address: *const c_void,
    sealed: &std::ops::Range<usize>,
) -> Result<(), String> {
    let page = rustix::param::page_size();
    let begin = entry / page * page;
    let protect = |protection| {
        let begin = with_exposed_provenance_mut::<c_void>(begin);
        // SAFETY: a page of the library's data, which stays readable.
        let outcome = unsafe { libc::mprotect(begin, page, protection) };
        let error = std::io::Error::last_os_error();
        if outcome == 0 { Ok(()) } else { Err(format!("its table cannot be written to: {error}")) }
    };
    protect(libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: an entry is as large as an address, aligned, and can be written to now.
    unsafe { with_exposed_provenance_mut::<*const c_void>(entry).write(address) };
    // The loader seals whole pages.
    let is_sealed = sealed.start <= begin && begin + page <= sealed.end.next_multiple_of(page);
    if is_sealed { protect(libc::PROT_READ) } else { Ok(()) }
}
