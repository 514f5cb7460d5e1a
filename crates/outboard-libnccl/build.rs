//! Gives the library the name that programs ask the loader for, and keeps it where it is: a program
//! may unload it, and what it has started or registered goes on.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnccl.so.2");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
