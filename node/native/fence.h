/*
 * The fence of a VMM (fence.c).
 */
#ifndef FLOTILLA_FENCE_H
#define FLOTILLA_FENCE_H

/*
 * Whether the path is a request to change the fence. Then it was changed, and errno is ECANCELED, or it could
 * not be changed, and errno is why.
 */
__attribute__((visibility("hidden"))) int fence_of_path(const char *path);

#endif
