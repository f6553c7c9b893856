// SPDX-License-Identifier: MIT
// What other headers of a program may have defined by the time it includes ours: Qt's keywords, X11's and
// Windows' names, glibc's and old compilers' leftovers, logging and test frameworks. None may reach into
// the library. Standard headers come first: they do not stand this either.
#pragma once

#undef linux // gcc has them where its extensions are on
#undef unix

#define abs(x) hostile !
#define max(a, b) hostile !
#define min(a, b) hostile !

#define ASSERT hostile !
#define Always hostile !
#define BUSY hostile !
#define Bool hostile !
#define CHECK hostile !
#define CONST hostile !
#define DEBUG hostile !
#define DELETE hostile !
#define ERROR hostile !
#define FAILED hostile !
#define FALSE hostile !
#define IN hostile !
#define INFO hostile !
#define LOG hostile !
#define NO_ERROR hostile !
#define None hostile !
#define OK hostile !
#define OPTIONAL hostile !
#define OUT hostile !
#define REQUIRE hostile !
#define STRICT hostile !
#define SUCCESS hostile !
#define Status hostile !
#define Success hostile !
#define TIMEOUT hostile !
#define TRUE hostile !
#define WARNING hostile !
#define emit hostile !
#define far hostile !
#define foreach hostile !
#define forever hostile !
#define interface hostile !
#define linux hostile !
#define major hostile !
#define minor hostile !
#define near hostile !
#define signals hostile !
#define slots hostile !
#define small hostile !
#define unix hostile !
