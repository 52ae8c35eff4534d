"""Files of datasets: checks, archives, and downloads that have been made already."""

import gzip
import hashlib
import os
import shutil
import tarfile
import zipfile
from urllib.parse import urlparse
from urllib.request import url2pathname


def calculate_md5(fpath, chunk_size=1024 * 1024):
    """A file's MD5 sum."""
    found = hashlib.md5(usedforsecurity=False)
    with open(fpath, "rb") as file:
        while chunk := file.read(chunk_size):
            found.update(chunk)
    return found.hexdigest()


def check_md5(fpath, md5, **kwargs):
    """Whether a file has an MD5 sum."""
    return md5 == calculate_md5(fpath, **kwargs)


def check_integrity(fpath, md5=None):
    """Whether a file exists and, if a sum is given, has it."""
    return os.path.isfile(fpath) and (md5 is None or check_md5(fpath, md5))


def download_url(url, root, filename=None, md5=None, max_redirect_hops=3):
    """The file of an address in a folder. Only ``file:`` addresses are fetched; a file that is there already is checked and used."""
    path = os.path.join(os.path.expanduser(root), filename or os.path.basename(urlparse(url).path))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if check_integrity(path, md5):
        return
    parts = urlparse(url)
    if parts.scheme != "file":
        raise RuntimeError(f"download_url: {url} is not fetched from the network. Put the file at {path}")
    shutil.copyfile(url2pathname(parts.path), path)
    if not check_integrity(path, md5):
        raise RuntimeError("File not found or corrupted.")


def list_dir(root, prefix=False):
    """The folders in a folder."""
    return _listed(root, prefix, os.path.isdir)


def list_files(root, suffix, prefix=False):
    """The files in a folder with an ending."""
    return [name for name in _listed(root, prefix, os.path.isfile) if name.endswith(suffix)]


def _listed(root, prefix, test):
    root = os.path.expanduser(root)
    return [os.path.join(root, name) if prefix else name for name in os.listdir(root) if test(os.path.join(root, name))]


def extract_archive(from_path, to_path=None, remove_finished=False):
    """Unpacks an archive (tar, zip) or a compressed file (gzip). Returns where."""
    from_path, to_path = os.fspath(from_path), os.path.dirname(from_path) if to_path is None else os.fspath(to_path)
    if tarfile.is_tarfile(from_path):
        with tarfile.open(from_path) as archive:
            archive.extractall(to_path, filter="data")
    elif zipfile.is_zipfile(from_path):
        with zipfile.ZipFile(from_path) as archive:
            archive.extractall(to_path)
    elif from_path.endswith(".gz"):
        to_path = to_path if os.path.splitext(to_path)[1] else os.path.join(to_path, os.path.basename(from_path)[:-3])
        with gzip.open(from_path, "rb") as inner, open(to_path, "wb") as file:
            shutil.copyfileobj(inner, file)
    else:
        raise RuntimeError(f"extract_archive: {from_path} is no tar, zip or gzip file")
    if remove_finished:
        os.remove(from_path)
    return to_path


def download_and_extract_archive(url, download_root, extract_root=None, filename=None, md5=None, remove_finished=False):
    """``download_url``, then ``extract_archive``."""
    root = os.path.expanduser(download_root)
    filename = filename or os.path.basename(urlparse(url).path)
    download_url(url, root, filename, md5)
    extract_archive(os.path.join(root, filename), extract_root or root, remove_finished)


def download_file_from_google_drive(file_id, root, filename=None, md5=None):
    """A file that is there already, checked; nothing is fetched from the network."""
    path = os.path.join(os.path.expanduser(root), filename or file_id)
    if not check_integrity(path, md5):
        raise RuntimeError(f"download_file_from_google_drive: {file_id} is not fetched from the network. Put the file at {path}")


def iterable_to_str(iterable):
    """Values in quotes, with commas."""
    return "'" + "', '".join(str(item) for item in iterable) + "'"


def verify_str_arg(value, arg=None, valid_values=None, custom_msg=None):
    """A word that must be one of some."""
    if not isinstance(value, str):
        raise ValueError(f"Expected type str{f' for argument {arg}' if arg else ''}, but got type {type(value)}.")
    if valid_values is not None and value not in valid_values:
        raise ValueError(custom_msg or f"Unknown value '{value}' for argument {arg}. Valid values are {{{iterable_to_str(valid_values)}}}.")
    return value
