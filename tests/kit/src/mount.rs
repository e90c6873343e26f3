//! A file system in user space with one file, which can fall silent: whoever asks anything of it waits.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, UNIX_EPOCH},
};

use super::PATIENCE;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, Request, spawn_mount,
};

/// What it said of a file holds for so long.
const TTL: Duration = Duration::from_millis(100);

/// So many it keeps waiting at once: of more it would not know.
const ASKED: usize = 16;

const FILE: INodeNo = INodeNo(2);

/// Whether it answers.
#[derive(Clone, Default)]
struct Voice(Arc<(Mutex<Silence>, Condvar)>);

#[derive(Default)]
struct Silence {
    lasts: bool,
    /// How many threads wait for an answer now.
    waiting: usize,
    /// Which have, by their numbers.
    kept_waiting: BTreeSet<u32>,
}

impl Voice {
    fn set_silent(&self, lasts: bool) {
        self.0.0.lock().unwrap().lasts = lasts;
        self.0.1.notify_all();
    }

    /// Waits until it may speak to whoever asked; not for ever, or nobody would be told that a test has failed.
    fn wait(&self, request: &Request) {
        let mut silence = self.0.0.lock().unwrap();
        if !silence.lasts {
            return;
        }
        silence.kept_waiting.insert(request.pid());
        silence.waiting += 1;
        let ended = self
            .0
            .1
            .wait_timeout_while(silence, 2 * PATIENCE, |silence| silence.lasts);
        ended.unwrap().0.waiting -= 1;
    }
}

/// A file system that is mounted until it is dropped.
pub struct Mount {
    session: Option<BackgroundSession>,
    voice: Voice,
    folder: PathBuf,
    name: String,
}

impl Mount {
    /// Mounts one that has a copy of this program.
    ///
    /// # Panics
    /// When it cannot be mounted, which takes root.
    pub fn with(program: &Path, folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let name = program.file_name().unwrap().to_str().unwrap().to_string();
        let voice = Voice::default();
        let files = Files {
            content: std::fs::read(program).unwrap(),
            name: name.clone(),
            voice: voice.clone(),
        };
        let mut config = Config::default();
        config.n_threads = Some(ASKED);
        let session = spawn_mount(files, folder, &config).unwrap();
        Self {
            session: Some(session),
            voice,
            folder: folder.to_path_buf(),
            name,
        }
    }

    /// Where the program is.
    pub fn program(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// From now on it answers nobody.
    pub fn fall_silent(&self) {
        self.voice.set_silent(true);
    }

    /// Whether anybody waits for an answer.
    pub fn is_waited_for(&self) -> bool {
        self.voice.0.0.lock().unwrap().waiting > 0
    }

    /// Whether this thread has ever waited for one.
    pub fn has_kept_waiting(&self, thread: u32) -> bool {
        let silence = self.voice.0.0.lock().unwrap();
        silence.kept_waiting.contains(&thread)
    }

    /// It answers again, also those who wait.
    pub fn speak(&self) {
        self.voice.set_silent(false);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.speak();
        // Its files may be in use until what runs them is gone, and what is attached to them. Whoever still waits for an answer
        // gets an error (-f): a thread of this process that did so for ever would keep it from ending.
        let mut unmount = Command::new("umount");
        drop(unmount.args(["-f", "-l"]).arg(&self.folder).status());
        drop(self.session.take());
        drop(std::fs::remove_dir(&self.folder));
    }
}

struct Files {
    content: Vec<u8>,
    name: String,
    voice: Voice,
}

impl Files {
    fn attributes(&self, number: INodeNo) -> FileAttr {
        let is_file = number == FILE;
        FileAttr {
            ino: number,
            size: if is_file {
                self.content.len() as u64
            } else {
                0
            },
            blocks: 1,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Files {
    fn lookup(&self, request: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.voice.wait(request);
        if name == self.name.as_str() {
            reply.entry(&TTL, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, request: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.voice.wait(request);
        reply.attr(&TTL, &self.attributes(number));
    }

    fn open(&self, request: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.voice.wait(request);
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.voice.wait(request);
        let rest = self.content.get(offset as usize..).unwrap_or_default();
        reply.data(&rest[..rest.len().min(size as usize)]);
    }

    fn flush(&self, request: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.voice.wait(request);
        reply.ok();
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.voice.wait(request);
        reply.statfs(0, 0, 0, 0, 0, 4096, 255, 4096);
    }
}
