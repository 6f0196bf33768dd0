/** The bundler writes imported styles to a separate file. */
declare module '*.css';
