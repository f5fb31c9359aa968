/* Writes a file: part of the file worker. */
#ifndef FLOTILLA_FILE_WRITE_H
#define FLOTILLA_FILE_WRITE_H

#include "file-worker.h"

_Noreturn void file_write(const struct file_request *request);

#endif
