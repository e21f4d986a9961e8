//! TUN devices: network interfaces whose other end is a file descriptor.

#![expect(unsafe_code, reason = "a TUN device is made by an ioctl")]

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
};

/// A TUN device; it disappears when it is dropped, or when the process ends however it ends.
#[derive(Debug)]
pub(crate) struct Tun {
    file: File,
}

impl Tun {
    /// Creates a device of this name in the network namespace of the calling thread.
    ///
    /// Packets are read and written bare, without the four bytes of packet information, and never block.
    ///
    /// # Errors
    ///
    /// What the system says; `/dev/net/tun` may be missing, the name taken, or the right to create it absent.
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)?;
        if name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the interface's name is too long"));
        }
        let ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        let mut request =
            libc::ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags } };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: the descriptor is open and a TUN's, and `request` outlives the call, which reads and writes one `ifreq`.
        let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { file }) }
    }

    /// Reads the next packet that the kernel sends, if one is there.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands a packet to the kernel as received on this device.
    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Where TUN devices come from.
pub(crate) const DEVICE: &str = "/dev/net/tun";
