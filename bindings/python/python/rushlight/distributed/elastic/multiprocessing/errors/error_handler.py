"""``torch.distributed.elastic.multiprocessing.errors.error_handler``."""

import faulthandler
import json
import os
import time
import traceback
import warnings

__all__ = ["ErrorHandler"]


class ErrorHandler:
    """Writes a rank's exception to the file of ``TORCHELASTIC_ERROR_FILE``, as JSON. Subclasses may do more."""

    _fn_name = None

    def _get_error_file_path(self):
        return os.environ.get("TORCHELASTIC_ERROR_FILE")

    def set_entrypoint_fn_name(self, fn_name):
        """Stores the name of the recorded function."""
        self._fn_name = fn_name

    def initialize(self):
        """Makes Python print the stack if a signal such as SIGSEGV ends the process."""
        try:
            faulthandler.enable(all_threads=True)
        except Exception as error:  # standard error may be no file
            warnings.warn(f"no stack will be printed for signals ({type(error).__name__}: {error})", stacklevel=2)

    def _write_error_file(self, file_path, error_msg):
        try:
            with open(file_path, "w") as file:
                file.write(error_msg)
        except OSError as error:
            warnings.warn(f"the error cannot be written for the launcher ({error})", stacklevel=2)

    def record_exception(self, e):
        """Writes an exception."""
        path = self._get_error_file_path()
        if path:
            stack = "".join(traceback.format_exception(type(e), e, e.__traceback__))
            details = {"py_callstack": stack, "timestamp": str(int(time.time()))}
            self._write_error_file(path, json.dumps({"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": details}}))

    def record_success(self):
        """Called when the function returned."""

    def maybe_enrich_signal_failure_message(self, message, error_file):
        """The message of a rank that a signal ended."""
        return message

    def override_error_code_in_rootcause_data(self, rootcause_error_file, rootcause_error, error_code=0):
        """Adds the exit code to the error of a child."""
        if isinstance(rootcause_error.get("message"), dict):
            rootcause_error["message"]["errorCode"] = error_code

    def dump_error_file(self, rootcause_error_file, error_code=0):
        """Passes the error of a child on as this process's own."""
        with open(rootcause_error_file) as file:
            error = json.load(file)
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, error, error_code)
        path = self._get_error_file_path()
        if path:
            self._write_error_file(path, json.dumps(error))
